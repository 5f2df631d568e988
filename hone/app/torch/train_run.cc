// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/train_run.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "hone/core/machine/clock.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/machine/trace.h"
#include "hone/core/version.h"
#include "hone/measure/measure.h"
#include "hone/model_io/write_model.h"
#include "hone/train/amp/autocast_guard.h"
#include "hone/train/trainer/schedule.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

// What a run's folder holds besides its model.
constexpr std::array kRunParts{"train.toml", "metrics.csv", "checkpoints"};
// The share of a --minutes budget for forward and backward passes; the rest is validation,
// optimizer and checkpoints.
constexpr double kStepShare = 0.9;
constexpr Index kProbeSteps = 8;
constexpr double kMaxSteps = 1e12;
constexpr double kPrecisionSeconds = 3;

constexpr Index kStepsPerWarmUpStep = 10;  // at least, with --minutes

constexpr const char *kFactoredLayers = "factored_layers", *kInnerWidths = "inner_widths",
                     *kTeacherHash = "teacher_hash";

// A key whose given value, auto, is replaced before a run records it.
constexpr std::string_view kSettledLater = "amp.precision";

// What a checkpoint records and a resumed run must match.
Json run_facts(const ConfigFacts& config, const DataFacts& data) {
  return {{"config", entries_to_json(config.entries)},
          {"config_hash", hash_entries(config.entries)},
          {"scaled", config.scaled},
          {kFactoredLayers, config.factored_layers},
          {kInnerWidths, config.inner_widths},
          {"data_hash", data.hash},
          {"data_name", data.name},
          {kTeacherHash, data.teacher_hash},
          {"threads", at::get_num_threads()},
          {"hone", version_text()},
          {"torch", torch_version()}};
}

void check_facts(const Json& recorded, const ConfigFacts& config, const DataFacts& data) {
  check_same_entries(recorded.at("config"), config.entries, config.defaults);
  const auto hash = recorded.at("data_hash").get<std::string>();
  HONE_CHECK(hash == data.hash, "data.path",
             concat("the ", data.kind, " that the run was started with, ",
                    recorded.at("data_name").get<std::string>(), " ", hash.substr(0, 12)),
             concat(data.name, " ", data.hash.substr(0, 12)));
  const std::string teacher = recorded.value(kTeacherHash, data.teacher_hash);
  HONE_REQUIRE(teacher == data.teacher_hash, "distill.teacher",
               "The teacher is not the one that the run was started with.");
  const int threads = recorded.at("threads").get<int>();
  if (threads != at::get_num_threads()) {
    log_warning(concat("the run was started with ", threads, " threads and continues with ",
                       at::get_num_threads(), ": results differ in the last bits"));
  }
  constexpr const char* kDevice = "trainer.device";
  const auto device_in = [&](const Json& json) {
    return json.value(kDevice, config.defaults.at(kDevice).get<std::string>());
  };
  const std::string before = device_in(recorded.at("config")),
                    now = device_in(entries_to_json(config.entries));
  if (before != now) {
    log_warning(concat("the run was started with ", kDevice, " = ", before, " and continues with ",
                       now, ": results differ in the last bits"));
  }
}

// Reads a key as it was recorded.
void take_recorded(const Json& config, const char* name, ConfigField field) {
  set_entry({{name, field, ""}}, concat(name, "=", config.at(name).get<std::string>()));
}

// A run may end earlier or later if that does not change the steps already done.
void check_steps(const Json& recorded, Index done, Index steps, const optim::LrConfig& lr,
                 double peak) {
  Index before = 0;
  take_recorded(recorded, "trainer.steps", &before);
  if (before == steps) return;
  const auto changed = trainer::first_changed_rate(lr, peak, done, before, steps);
  if (!changed) return;
  fail_argument(
      "trainer.steps",
      concat("It cannot change from ", before, " to ", steps, ": with lr.schedule = ", lr.schedule,
             " the learning rate of step ", *changed + 1, ", which is done, depends on it."));
}

// The run_facts that the run in the folder was started with; null: it has no checkpoint.
Json recorded_facts(const fs::path& out) {
  const auto newest = trainer::CheckpointStore(out / "checkpoints").newest_facts();
  return newest ? newest->at("run") : Json();
}

// For a scope of trial steps: restores buffers, such as running means, which every forward pass
// changes.
class KeptBuffers {
 public:
  explicit KeptBuffers(trainer::Task& task) {
    for (const trainer::CheckpointTensor& weight : task.weights()) {
      if (!weight.value.requires_grad()) kept_.emplace_back(weight.value, weight.value.clone());
    }
  }
  ~KeptBuffers() {
    for (const auto& [buffer, before] : kept_) buffer.copy_(before);
  }
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> kept_;
};

// bf16 where it makes forward and backward passes faster.
std::string choose_precision(trainer::Task& task, c10::DeviceType device) {
  HONE_TRACE_ZONE("choose precision");
  const KeptBuffers buffers(task);
  const auto try_pass = [&task] {
    task.micro_batch(0, 0).sum.backward();
    for (const trainer::CheckpointTensor& weight : task.weights()) {
      weight.value.mutable_grad() = torch::Tensor();
    }
  };
  const auto measurer = measure::make_measurer();
  const amp::PrecisionChoice choice =
      amp::choose_precision(try_pass, device, *measurer, {.max_seconds = kPrecisionSeconds});
  log_info(concat("amp.precision: ", choice.reason));
  return choice.use_bf16 ? "bf16" : "fp32";
}

amp::AmpOptions amp_options_of(const trainer::TrainerConfig& config) {
  amp::AmpOptions options = amp::amp_options(config.amp);
  options.device = trainer::device_of(config).type();
  return options;
}

Index steps_for(const RunOptions& job, trainer::Task& task, const trainer::TrainerConfig& config) {
  HONE_TRACE_ZONE("measure a step");
  const double minutes = job.minutes;
  const KeptBuffers buffers(task);
  const amp::MixedPrecision precision(amp_options_of(config));
  const amp::AutocastGuard autocast = precision.autocast();
  const double step_seconds =
      trainer::measure_step_seconds(task, config.accumulation_steps, kProbeSteps);
  const double minutes_per_step = step_seconds / (60 * kStepShare);
  const double fitting = std::floor(minutes / minutes_per_step);
  double steps = fitting;
  if (job.max_steps > 0) steps = std::min(steps, static_cast<double>(job.max_steps));
  steps = std::max(steps, static_cast<double>(job.min_steps));
  HONE_CHECK(steps >= 1, "minutes", concat("at least ", minutes_per_step, ", what one step takes"),
             minutes);
  HONE_CHECK(steps <= kMaxSteps, "minutes", concat("at most ", kMaxSteps * minutes_per_step),
             minutes);
  log_info(concat(minutes, " minutes at ", step_seconds * 1e3, " ms a step: ", fitting, " steps",
                  steps == fitting ? "" : concat("; the run takes ", steps)));
  return static_cast<Index>(steps);
}

trainer::TrainerOptions trainer_options(const trainer::TrainerConfig& config,
                                        const ConfigFacts& facts, const DataFacts& data,
                                        const fs::path& out) {
  trainer::TrainerOptions options;
  options.steps = config.steps;
  options.accumulation_steps = config.accumulation_steps;
  options.clip_norm = config.clip_value > 0 ? 0 : config.clip_norm;
  options.clip_value = config.clip_value;
  options.norm_type = trainer::norm_type_of(config.clip_norm_type);
  options.validate_every = config.validate_every;
  options.checkpoint_every = config.checkpoint_every;
  options.keep_checkpoints = config.keep_checkpoints;
  options.folder = out;
  options.ema_decay = config.ema_decay;
  options.amp = amp_options_of(config);
  options.amp.skip_nonfinite = config.skip_nonfinite;
  options.amp.max_skipped_steps = config.max_skipped_steps;
  options.max_memory_bytes = trainer::max_memory_bytes(config);
  options.keep_zeros = config.keep_zeros;
  options.exports_best = config.export_step == "best";
  options.metrics = trainer::parse_metrics_formats(config.metrics);
  options.weight_unit = data.unit;
  options.device = trainer::device_of(config);
  options.seed = static_cast<std::uint64_t>(config.seed);
  options.facts = run_facts(facts, data);
  return options;
}

// Then another run loses nothing by replacing it.
bool ended_before_checkpoint(const fs::path& out) {
  std::error_code none;
  return fs::is_directory(out / "checkpoints", none) && !holds_checkpoint(out);
}

// All but what the new run replaces when it begins.
void remove_earlier_run(const fs::path& out) {
  const std::array folders{out / "model", out / kInitialModel};
  for (const fs::path& folder : folders) model_io::check_model_folder(folder);
  for (const fs::path& file : trainer::metrics_files(out)) fs::remove(file);
  std::error_code not_empty;
  fs::remove(out / "tensorboard", not_empty);
  for (const fs::path& folder : folders) fs::remove_all(folder);
}

// A run of few steps would otherwise end before its warm-up does.
void shorten_warm_up(optim::LrConfig& lr, const ConfigKeys& given, Index steps) {
  const Index most = std::max<Index>(1, steps / kStepsPerWarmUpStep);
  if (given.contains("lr.warm_up_steps") || lr.warm_up_steps <= most) return;
  log_info(concat("lr.warm_up_steps: ", most, " instead of ", lr.warm_up_steps,
                  ", because the run has ", steps, " steps"));
  lr.warm_up_steps = most;
}

void warn_of_long_warm_up(const optim::LrConfig& lr, Index steps) {
  if (lr.schedule == "one_cycle" || lr.warm_up_steps < steps) return;
  log_warning(concat("lr.warm_up_steps = ", lr.warm_up_steps, " is not below trainer.steps = ",
                     steps, ": lr.schedule = ", lr.schedule, " ends in its warm-up"));
}

void check_earlier_run(const RunOptions& job) {
  HONE_CHECK(!(job.resume && job.fresh), "train", "one of resume and fresh", "both");
  const std::string out = job.out.string();
  std::error_code ignored;
  const fs::path folder = job.out / "model";
  const bool there = holds_run(job.out);
  const bool model = fs::exists(folder, ignored) && !fs::is_empty(folder, ignored);
  const bool keeps = there && !ended_before_checkpoint(job.out);
  if (!job.resume && !job.fresh && (keeps || model)) {
    fail_argument(out, concat("The folder already holds ", keeps ? "a run" : "a model",
                              "; continue it with --resume, replace it with --fresh, or choose "
                              "another --out."));
  }
  model_io::check_model_folder(folder);
  check_output_excludes(folder, job.data);
  for (const char* part : kRunParts) check_output_excludes(job.out / part, job.data);
  for (const fs::path& file : trainer::metrics_files(job.out))
    check_output_excludes(file, job.data);
  if (job.resume) check_run_to_resume(job.out);
}

}  // namespace

bool holds_run(const fs::path& out) {
  std::error_code ignored;
  return std::ranges::any_of(kRunParts,
                             [&](const char* part) { return fs::exists(out / part, ignored); });
}

void check_run_to_resume(const fs::path& out) {
  if (holds_run(out)) return;
  fail(ErrorCategory::NotFound, out.string(),
       "The folder holds no run to resume; without --resume a new one is started.");
}

bool holds_checkpoint(const fs::path& out) {
  std::error_code none;
  const fs::path folder = out / "checkpoints";
  return fs::is_directory(folder, none) && !trainer::CheckpointStore(folder).steps().empty();
}

// A step allocates and frees the same megabytes, and handing them back to the system made the
// matrix products up to twice as slow (page faults; EPYC, 2048 x 1024 outputs). cuBLAS is
// deterministic with a workspace of this kind, which must be chosen before its first product.
void prepare_libtorch(int threads, c10::Device device) {
  at::set_num_threads(threads > 0 ? threads : usable_cpus());
  if (!device.is_cpu()) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/!device.is_cpu());
  at::globalContext().setDeterministicFillUninitializedMemory(false);
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2147483647);
#endif
}

TrainRun::TrainRun(RunOptions options, const trainer::TrainerConfig& config)
    : begin_(steady_clock().now_ns()), options_(std::move(options)) {
  const double minutes = options_.minutes;
  HONE_CHECK(std::isfinite(minutes) && minutes >= 0, "minutes", "a finite number above 0", minutes);
  lock_ = std::make_unique<FolderLock>(options_.out);
  check_earlier_run(options_);
  prepare_libtorch(options_.threads, trainer::device_of(config));
  trainer::apply_tf32(config);
  const bool is_limited = trainer::max_memory_bytes(config) > 0;
  HONE_CHECK(minutes == 0 || !is_limited, "minutes",
             "no trainer.max_memory_mb, which may change how long a step takes",
             config.max_memory_mb);
  if (is_limited && trainer::device_of(config).is_cpu()) meter_.emplace();
}

void TrainRun::check_resumed(const ConfigEntries& entries, const ConfigKeys& given,
                             const Json& defaults) const {
  const Json recorded = options_.resume ? recorded_facts(options_.out) : Json();
  if (recorded.is_null()) return;
  ConfigEntries chosen;
  std::ranges::copy_if(entries, std::back_inserter(chosen), [&](const ConfigEntry& entry) {
    return given.contains(entry.name) && entry.name != kSettledLater;
  });
  check_same_entries(recorded.at("config"), chosen, defaults);
}

void TrainRun::fix(trainer::TrainerConfig& config, optim::LrConfig& lr, const ConfigKeys& given,
                   trainer::Task& task) const {
  std::string& precision = config.amp.precision;
  const bool is_auto = precision == "auto", is_timed = options_.minutes > 0;
  if (!is_auto && !is_timed) return;
  const Json recorded = options_.resume ? recorded_facts(options_.out) : Json();
  const auto take = [&recorded](const char* name, ConfigField field) {
    if (!recorded.is_null()) take_recorded(recorded.at("config"), name, field);
    return !recorded.is_null();
  };
  if (is_auto && !take("amp.precision", &precision)) {
    precision = choose_precision(task, trainer::device_of(config).type());
  }
  if (is_timed) take("lr.warm_up_steps", &lr.warm_up_steps);
  if (is_timed && !take("trainer.steps", &config.steps)) {
    config.steps = steps_for(options_, task, config);
    shorten_warm_up(lr, given, config.steps);
  }
}

std::optional<std::string> TrainRun::recorded_value(const char* key) const {
  const Json recorded = options_.resume ? recorded_facts(options_.out) : Json();
  if (recorded.is_null() || !recorded.at("config").contains(key)) return std::nullopt;
  return recorded.at("config").at(key).get<std::string>();
}

std::optional<std::vector<std::string>> TrainRun::recorded_scaled() const {
  const Json recorded = options_.resume ? recorded_facts(options_.out) : Json();
  if (recorded.is_null()) return std::nullopt;
  // Earlier versions, in which every rate was the same, recorded none.
  return recorded.value("scaled", std::vector<std::string>());
}

Json TrainRun::recorded_layers() const {
  const Json recorded = options_.resume ? recorded_facts(options_.out) : Json();
  Json out = Json::object();
  if (recorded.is_null()) return out;
  for (const char* key : {kFactoredLayers, kInnerWidths}) {
    if (recorded.contains(key) && !recorded[key].empty()) out[key] = recorded[key];
  }
  return out;
}

trainer::TrainResult TrainRun::train(const ConfigFacts& facts, const optim::LrConfig& lr,
                                     const trainer::TrainerConfig& config, const DataFacts& data,
                                     trainer::Task& task, optim::MultiTensorOptimizer& optimizer,
                                     const std::function<void()>& on_begin) const {
  const double peak = optimizer.param_groups().front().options().get_lr();
  const auto scheduler = trainer::make_schedule(lr, config.steps, optimizer);
  const bool replaces = !options_.resume && holds_run(options_.out);
  trainer::TrainerOptions options = trainer_options(config, facts, data, options_.out);
  options.check_facts = [&](const Json& recorded, Index done) {
    check_facts(recorded, facts, data);
    check_steps(recorded.at("config"), done, config.steps, lr, peak);
  };
  trainer::Trainer trainer(std::move(options));
  if (options_.resume && !trainer.resume(task, optimizer, *scheduler)) {
    log_warning(concat(options_.out.string(), " has no checkpoint: the run starts from step 0"));
  }
  warn_of_long_warm_up(lr, config.steps);
  if (replaces) remove_earlier_run(options_.out);
  if (on_begin) on_begin();
  write_text_file(options_.out / "train.toml", entries_to_toml(facts.entries));
  return trainer.fit(task, optimizer, *scheduler, options_.stop);
}

double TrainRun::seconds() const { return seconds_between(begin_, steady_clock().now_ns()); }

}  // namespace hone::app
