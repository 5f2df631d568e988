// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/train_lm.h"

#include <optional>
#include <utility>
#include <vector>

#include "hone/app/torch/train_run.h"
#include "hone/core/file/file_io.h"
#include "hone/data/story_grammar.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/optim/averaged_weights.h"
#include "hone/train/stop_scope.h"
#include "hone/train/task/lm/export_lm.h"
#include "hone/train/task/lm/factored_model.h"
#include "hone/train/task/lm/lm_setup.h"
#include "hone/train/task/lm/memory_check.h"
#include "hone/train/trainer/first_steps.h"
#include "hone/train/trainer/make_optimizer.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

// A run that goes on has its weights and does not need the model that it started from.
std::optional<task::InitialModel> initial_model_of(const TrainLmJob& job, task::LmConfig& config) {
  const bool goes_on = job.resume && holds_checkpoint(job.out);
  auto initial = task::take_initial_model(config, goes_on ? job.out / kInitialModel : fs::path());
  if (initial && initial->file != nullptr) check_output_spares(job.out, initial->path);
  return initial;
}

task::ExportParts export_parts(const task::LmData& data,
                               const std::optional<task::InitialModel>& initial,
                               const std::optional<task::LmTeacher>& teacher) {
  if (!initial && teacher) {
    return {.tokenizer = data.tokenizer.get(),
            .generation_defaults = teacher->generation_defaults,
            .metadata = teacher->metadata};
  }
  if (!initial) return {.tokenizer = data.tokenizer.get()};
  return {.tokenizer = data.tokenizer.get(),
          .generation_defaults = initial->generation_defaults,
          .metadata = initial->metadata,
          .context = initial->architecture.context};
}

// `config` becomes the configuration that the run had.
TrainLmResult run_job(const TrainLmJob& job, task::LmConfig& config) {
  const StopScope scope(job.stop);
  config = job.config;
  const std::optional<task::InitialModel> initial = initial_model_of(job, config);
  check_config(config);
  if (config.data.path != data::kStoriesName) check_output_spares(job.out, config.data.path);
  const TrainRun run(options_of(job), config.trainer);
  run.check_resumed(config);
  const task::InitialModel* const from = initial ? &*initial : nullptr;
  const std::optional<task::LmTeacher> opened = task::open_teacher(config, from);
  const task::LmTeacher* const teacher = opened ? &*opened : nullptr;
  if (teacher != nullptr) check_output_spares(job.out, teacher->path);
  task::LmPlan plan = task::plan_lm(config, from, teacher);
  if (trainer::device_of(config.trainer).is_cpu()) {
    task::check_memory(config, plan.architecture, plan.windows.longest_length(),
                       memory::free_bytes(at::kCPU));
  }
  task::LmSetup setup = task::set_up_lm(config, std::move(plan), from, teacher);
  run.fix(config.trainer, config.lr, config.given, setup.task);
  config.optim = trainer::apply_preset(config.optim, config.given, *setup.model);
  const auto optimizer = task::make_optimizer(config, *setup.model);
  if (!job.resume) {
    trainer::warn_of_first_steps(config.optim, config.lr, task::peak_of(config), task::lm_rules(),
                                 config.trainer.steps);
  }
  const trainer::TrainResult trained =
      run.train(facts_of(config), config.lr, config.trainer,
                {.name = setup.data.name,
                 .hash = setup.data.hash,
                 .kind = "text",
                 .unit = "tokens",
                 .teacher_hash = teacher == nullptr ? "" : hash_of_files(teacher->files)},
                setup.task, *optimizer, [&] {
                  if (!initial || initial->file == nullptr) return;
                  task::write_initial_model(job.out / kInitialModel, *initial);
                });
  const fs::path folder = job.out / "model";
  const optim::AveragedWeights averaged(*optimizer, trained.averaged_buffers);
  task::export_lm(folder, *setup.model, export_parts(setup.data, initial, opened));
  TrainLmResult result{.steps = trained.steps,
                       .skipped_steps = trained.skipped_steps,
                       .parameters = task::architecture_of(*setup.model).parameters(),
                       .train_loss = trained.train_loss,
                       .tokens_per_s = trained.tokens_per_s,
                       .val_loss = trained.validation.loss,
                       .val_bits_per_byte = trained.validation.bits_per_byte,
                       .loop_share = trained.loop_share,
                       .seconds = run.seconds(),
                       .model_step = trained.model_step,
                       .amp = amp::to_json(trained.amp),
                       .distillation = {},
                       .out = job.out,
                       .model = folder};
  if (teacher == nullptr) return result;
  result.distillation = Distillation{.teacher = teacher->path,
                                     .teacher_parameters = teacher->parameters,
                                     .parameters = result.parameters,
                                     .agreement = setup.task.agreement(/*all=*/true)};
  read_final_losses(job.out, *result.distillation);
  return result;
}

// Trains the same model without the teacher, whose predictions still are compared with its own.
Distillation::Control train_alone(const TrainLmJob& job, const task::LmConfig& settled) {
  task::LmConfig config;
  const TrainLmResult alone = run_job(job_alone(job, settled), config);
  return {
      .val_loss = alone.val_loss, .agreement = alone.distillation->agreement, .model = alone.model};
}

}  // namespace

TrainLmResult train_lm(const TrainLmJob& job) {
  return memory::run_in_memory("train lm", [&] {
    task::LmConfig config;
    TrainLmResult result = run_job(job, config);
    if (result.distillation && config.distill.control) {
      result.distillation->control = train_alone(job, config);
    }
    return result;
  });
}

Json to_json(const TrainLmResult& result) {
  return {{"steps", result.steps},
          {"skipped_steps", result.skipped_steps},
          {"train_loss", to_json(result.train_loss)},
          {"val_loss", result.val_loss},
          {"val_bits_per_byte", result.val_bits_per_byte},
          {"tokens_per_s", to_json(result.tokens_per_s)},
          {"loop_share", result.loop_share},
          {"seconds", result.seconds},
          {"model_step", result.model_step},
          {"amp", result.amp},
          {"parameters", result.parameters},
          {"distillation", to_json(result.distillation)},
          {"out", result.out.string()},
          {"model", result.model.string()}};
}

}  // namespace hone::app
