// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/train_lm.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/clock.h"
#include "hone/core/cpu_info.h"
#include "hone/core/file_io.h"
#include "hone/core/folder_lock.h"
#include "hone/core/log.h"
#include "hone/core/version.h"
#include "hone/model_io/write_model.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/nn/llama.h"
#include "hone/train/trainer/lm_setup.h"
#include "hone/train/trainer/make_optimizer.h"
#include "hone/train/trainer/schedule.h"
#include "hone/train/trainer/trainer.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

// Share of a --minutes budget that is left to steps; the rest is validation, optimiser,
// checkpoints.
constexpr double kStepShare = 0.9;
constexpr Index kProbeSteps = 8;
constexpr double kMostSteps = 1e12;

// Same bits from the same input on the same machine and threads, and freed memory kept: a step
// allocates and frees the same megabytes, and handing them back to the system made the matrix
// products up to twice as slow (page faults; EPYC, 2048 x 1024 outputs).
void prepare_libtorch(int threads) {
  at::set_num_threads(threads > 0 ? threads : usable_cpus());
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2147483647);
#endif
}

// What a checkpoint records, to be the same on resume.
Json facts_of(const trainer::LmConfig& config, const trainer::LmData& data) {
  return {{"config", trainer::to_json(config)},
          {"config_hash", trainer::config_hash(config)},
          {"data_hash", data.hash},
          {"data_name", data.name},
          {"threads", at::get_num_threads()},
          {"hone", version_text()},
          {"torch", torch_version()}};
}

void check_facts(const Json& recorded, const trainer::LmConfig& config,
                 const trainer::LmData& data) {
  trainer::check_same_run(recorded.at("config"), config);
  const auto hash = recorded.at("data_hash").get<std::string>();
  HONE_CHECK(hash == data.hash, "data.path",
             concat("the text that the run was started with, ",
                    recorded.at("data_name").get<std::string>(), " ", hash.substr(0, 12)),
             concat(data.name, " ", data.hash.substr(0, 12)));
  const int threads = recorded.at("threads").get<int>();
  if (threads != at::get_num_threads()) {
    log_warning(concat("the run was started with ", threads, " threads and goes on with ",
                       at::get_num_threads(), ": results differ in the last bits"));
  }
}

// The steps that a resumed run was fixed to by --minutes.
std::optional<Index> recorded_steps(const fs::path& out) {
  const auto newest = trainer::CheckpointStore(out / "checkpoints").load_newest();
  if (!newest) return std::nullopt;
  trainer::LmConfig recorded;
  trainer::set_config(
      recorded,
      concat("trainer.steps=",
             newest->facts.at("run").at("config").at("trainer.steps").get<std::string>()));
  return recorded.trainer.steps;
}

Index steps_for(double minutes, trainer::Task& task, const trainer::LmConfig& config) {
  const double step_seconds =
      trainer::measure_step_seconds(task, config.trainer.accumulation_steps, kProbeSteps);
  const double minutes_per_step = step_seconds / (60 * kStepShare);
  const double steps = std::floor(minutes / minutes_per_step);
  HONE_CHECK(steps >= 1, "minutes", concat("at least ", minutes_per_step, ", what one step takes"),
             minutes);
  HONE_CHECK(steps <= kMostSteps, "minutes", concat("at most ", kMostSteps * minutes_per_step),
             minutes);
  log_info(concat(minutes, " minutes at ", step_seconds * 1e3, " ms a step: ", steps, " steps"));
  return static_cast<Index>(steps);
}

void export_model(const fs::path& folder, const nn::Llama& model, const trainer::LmData& data) {
  std::vector<model_io::NamedMatrix> tensors;
  for (const nn::NamedTensor& named : model->hugging_face_tensors()) {
    HONE_CHECK(named.tensor.is_contiguous(), "export", "contiguous weights", named.name);
    const bool is_vector = named.tensor.dim() == 1;
    StoredMatrix matrix;
    matrix.rows = is_vector ? 1 : named.tensor.size(0);
    matrix.cols = named.tensor.size(-1);
    matrix.bytes = {static_cast<const std::byte*>(named.tensor.data_ptr()), named.tensor.nbytes()};
    tensors.push_back({named.name, matrix, is_vector});
  }
  model_io::write_hugging_face(folder, {.architecture = model->architecture(),
                                        .tensors = tensors,
                                        .tokenizer = data.tokenizer.get()});
}

trainer::TrainerOptions trainer_options(const trainer::LmConfig& config,
                                        const trainer::LmData& data, const fs::path& out) {
  trainer::TrainerOptions options;
  options.steps = config.trainer.steps;
  options.accumulation_steps = config.trainer.accumulation_steps;
  options.clip_norm = config.trainer.clip_norm;
  options.validate_every = config.trainer.validate_every;
  options.checkpoint_every = config.trainer.checkpoint_every;
  options.keep_checkpoints = config.trainer.keep_checkpoints;
  options.folder = out;
  options.max_memory_bytes = config.trainer.max_memory_mb << 20;
  options.metrics = trainer::parse_metrics_formats(config.trainer.metrics);
  options.seed = static_cast<std::uint64_t>(config.trainer.seed);
  options.facts = facts_of(config, data);
  options.check_facts = [&config, &data](const Json& recorded) {
    check_facts(recorded, config, data);
  };
  return options;
}

void check_earlier_run(const TrainLmJob& job) {
  HONE_CHECK(!(job.resume && job.fresh), "train", "one of resume and fresh", "both");
  const std::string out = job.out.string();
  std::error_code ignored;
  const bool there = holds_run(job.out), model = fs::exists(job.out / "model", ignored);
  HONE_CHECK(job.resume || job.fresh || !(there || model), out,
             "a folder without a run (--resume goes on with one, --fresh replaces it, another "
             "--out keeps it)",
             there ? "an earlier run" : "a model");
  if (job.resume && !there) {
    fail(ErrorCategory::NotFound, out, "a run to resume (without --resume one is started)", "none");
  }
}

}  // namespace

bool holds_run(const fs::path& out) {
  std::error_code ignored;
  for (const char* part : {"train.toml", "metrics.csv", "checkpoints"}) {
    if (fs::exists(out / part, ignored)) return true;
  }
  return false;
}

TrainLmResult train_lm(const TrainLmJob& job) {
  const std::int64_t begin = steady_clock().now_ns();
  trainer::LmConfig config = job.config;
  trainer::check_config(config);
  HONE_CHECK(std::isfinite(job.minutes) && job.minutes >= 0, "minutes", "a finite number above 0",
             job.minutes);
  const FolderLock lock(job.out);
  check_earlier_run(job);
  prepare_libtorch(job.threads);
  HONE_CHECK(job.minutes == 0 || config.trainer.max_memory_mb == 0, "minutes",
             "no trainer.max_memory_mb, which may change how long a step takes",
             config.trainer.max_memory_mb);
  std::optional<memory::MemoryMeter> meter;  // before the model, so that its weights count
  if (config.trainer.max_memory_mb > 0) meter.emplace();
  trainer::LmSetup setup = trainer::set_up_lm(config);
  const trainer::LmData& data = setup.data;
  if (job.minutes > 0) {
    const auto recorded = job.resume ? recorded_steps(job.out) : std::nullopt;
    config.trainer.steps = recorded ? *recorded : steps_for(job.minutes, setup.task, config);
  }
  const auto optimizer = trainer::make_optimizer(config, *setup.model);
  const auto scheduler = trainer::make_schedule(config, *optimizer);
  trainer::Trainer trainer(trainer_options(config, data, job.out));
  if (job.resume && !trainer.resume(setup.task, *optimizer, *scheduler)) {
    log_warning(concat("no checkpoint in ", job.out.string(), ": starting from step 0"));
  }
  write_text_file(job.out / "train.toml", trainer::to_toml(config));
  const std::atomic<bool> never{false};
  const trainer::TrainResult trained =
      trainer.fit(setup.task, *optimizer, *scheduler, job.stop == nullptr ? never : *job.stop);
  const fs::path folder = job.out / "model";
  export_model(folder, setup.model, data);
  return {.steps = trained.steps,
          .parameters = setup.model->architecture().parameters(),
          .train_loss = trained.train_loss,
          .val_loss = trained.validation.loss,
          .val_bits_per_byte = trained.validation.bits_per_byte,
          .tokens_per_s = trained.tokens_per_s,
          .seconds = seconds_between(begin, steady_clock().now_ns()),
          .out = job.out,
          .model = folder};
}

Json to_json(const TrainLmResult& result) {
  return {{"steps", result.steps},
          {"train_loss", result.train_loss},
          {"val_loss", result.val_loss},
          {"val_bits_per_byte", result.val_bits_per_byte},
          {"tokens_per_s", result.tokens_per_s},
          {"seconds", result.seconds},
          {"parameters", result.parameters},
          {"out", result.out.string()},
          {"model", result.model.string()}};
}

}  // namespace hone::app
