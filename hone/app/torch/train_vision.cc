// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/train_vision.h"

#include <utility>

#include "hone/app/torch/train_run.h"
#include "hone/app/vision_folder.h"
#include "hone/core/file/file_io.h"
#include "hone/data/leaves/leaves.h"
#include "hone/model_io/json_fields.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/nn/load_weights.h"
#include "hone/train/optim/averaged_weights.h"
#include "hone/train/stop_scope.h"
#include "hone/train/task/vision/vision_model.h"
#include "hone/train/task/vision/vision_setup.h"
#include "hone/train/trainer/first_steps.h"
#include "hone/train/trainer/make_optimizer.h"

namespace hone::app {

namespace {

// A run that goes on has its weights and does not need those that it started from.
task::VisionConfig with_needed_init(const TrainVisionJob& job, task::VisionConfig config) {
  if (job.resume && holds_checkpoint(job.out)) config.model.init.clear();
  const std::string& init = config.model.init;
  if (!init.empty()) check_output_spares(job.out, nn::weights_file_of(init));
  return config;
}

// The size of the images of the classifier that the run starts or learns from, or that the run to
// resume had; 0 without one, and with a size of the configuration's own.
Index image_side_of(const task::VisionConfig& config, const TrainRun& run) {
  if (config.data.image_size != 0) return 0;
  if (const auto before = run.recorded_value("data.image_size")) return std::stoll(*before);
  for (const std::string& from : {config.model.init, config.distill.teacher}) {
    if (from.empty() || !is_vision_model(from)) continue;
    return task::read_vision_model(from).image_shape().height;
  }
  return 0;
}

std::optional<data::LeavesOptions> leaves_of(const task::VisionConfig::Data& data) {
  if (data.path != data::kLeavesName) return std::nullopt;
  return data.leaves;
}

// `config` becomes the configuration that the run had.
TrainVisionResult run_job(const TrainVisionJob& job, task::VisionConfig& config) {
  const StopScope scope(job.stop);
  config = task::apply_preset(job.config);
  check_config(config);
  if (config.data.path != data::kLeavesName) check_output_outside(job.out, config.data.path);
  if (const std::string& teacher = config.distill.teacher; !teacher.empty()) {
    check_output_spares(job.out, nn::weights_file_of(teacher));
  }
  const TrainRun run(options_of(job), config.trainer);
  run.check_resumed(config);
  const Json layers = run.recorded_layers();
  const model_io::JsonFields recorded(layers, "checkpoint");
  const Index image_side = image_side_of(config, run);
  task::VisionSetup setup = task::set_up_vision(
      with_needed_init(job, config), job.stop,
      {model_io::read_factored_layers(recorded), task::read_inner_widths(recorded), image_side});
  if (image_side > 0) config.data.image_size = setup.data->corpus.shape.height;
  if (config.backbone_scale != 1) {
    if (auto scaled = run.recorded_scaled()) setup.scaled = std::move(*scaled);
  }
  const data::ImageCorpus& corpus = setup.data->corpus;
  run.fix(config.trainer, config.lr, config.given, *setup.task);
  const torch::nn::Module& module = setup.task->objective().module();
  config.optim = trainer::apply_preset(config.optim, config.given, module);
  const auto optimizer = task::make_optimizer(config, setup);
  if (!job.resume) {
    trainer::warn_of_first_steps(config.optim, config.lr, task::peak_of(config),
                                 task::vision_rules(), config.trainer.steps);
  }
  ConfigFacts facts = facts_of(config);
  facts.scaled = setup.scaled;
  facts.inner_widths = setup.model->spec().inner_widths;
  facts.factored_layers = model_io::write_factored_layers(task::factored_layers_of(*setup.model));
  const trainer::TrainResult trained = run.train(
      facts, config.lr, config.trainer,
      {.name = corpus.name,
       .hash = corpus.hash,
       .kind = "images",
       .unit = "images",
       .teacher_hash = setup.teacher == nullptr
                           ? ""
                           : hash_of_files({nn::weights_file_of(setup.teacher->folder())})},
      *setup.task, *optimizer);
  const optim::AveragedWeights averaged(*optimizer, trained.averaged_buffers);
  TrainVisionResult result;
  result.model = job.out / "model";
  task::write_vision_model(result.model,
                           {.net = setup.model,
                            .classes = corpus.classes,
                            .stats = setup.data->stats,
                            .image_side = config.augment.side > 0 ? corpus.shape.height : 0,
                            .leaves = leaves_of(config.data),
                            .parts = setup.task->objective().parts()});
  for (const torch::Tensor& parameter : setup.model->parameters()) {
    result.parameters += parameter.numel();
  }
  result.steps = trained.steps;
  result.skipped_steps = trained.skipped_steps;
  result.classes = static_cast<Index>(corpus.classes.size());
  result.broken_images = corpus.broken;
  result.train_loss = trained.train_loss;
  result.val_loss = trained.validation.loss;
  result.val_accuracy = trained.validation.accuracy.value_or(0);
  result.images_per_s = trained.tokens_per_s;
  result.loop_share = trained.loop_share;
  result.seconds = run.seconds();
  result.model_step = trained.model_step;
  result.amp = amp::to_json(trained.amp);
  result.method = config.loss.method;
  if (const auto verdict = setup.task->verdict()) result.guard = name_of(*verdict);
  result.objective = setup.task->objective().report();
  result.out = job.out;
  if (setup.teacher == nullptr) return result;
  result.distillation = Distillation{.teacher = setup.teacher->folder(),
                                     .teacher_parameters = setup.teacher->parameters(),
                                     .parameters = result.parameters,
                                     .agreement = setup.task->agreement(*setup.teacher)};
  read_final_losses(job.out, *result.distillation);
  return result;
}

// Trains the same model without the teacher, whose predictions still are compared with its own.
Distillation::Control train_alone(const TrainVisionJob& job, const task::VisionConfig& settled) {
  task::VisionConfig config;
  const TrainVisionResult alone = run_job(job_alone(job, settled), config);
  return {.val_loss = alone.val_loss,
          .agreement = alone.distillation->agreement,
          .val_accuracy = alone.val_accuracy,
          .model = alone.model};
}

}  // namespace

TrainVisionResult train_vision(const TrainVisionJob& job) {
  const char* const verb = job.config.loss.method == "paco" ? "train paco" : "train vision";
  return memory::run_in_memory(verb, [&] {
    task::VisionConfig config;
    TrainVisionResult result = run_job(job, config);
    if (result.distillation && config.distill.control) {
      result.distillation->control = train_alone(job, config);
    }
    return result;
  });
}

Json to_json(const TrainVisionResult& result) {
  return {{"steps", result.steps},
          {"skipped_steps", result.skipped_steps},
          {"train_loss", to_json(result.train_loss)},
          {"val_loss", result.val_loss},
          {"val_accuracy", result.val_accuracy},
          {"images_per_s", to_json(result.images_per_s)},
          {"loop_share", result.loop_share},
          {"seconds", result.seconds},
          {"model_step", result.model_step},
          {"amp", result.amp},
          {"parameters", result.parameters},
          {"classes", result.classes},
          {"broken_images", result.broken_images},
          {"method", result.method},
          {"guard", result.guard.empty() ? Json() : Json(result.guard)},
          {"objective", result.objective},
          {"distillation", to_json(result.distillation)},
          {"out", result.out.string()},
          {"model", result.model.string()}};
}

}  // namespace hone::app
