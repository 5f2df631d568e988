// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/app/torch/train_job.h"
#include "hone/core/config/config_table.h"
#include "hone/core/file/folder_lock.h"
#include "hone/core/file/json_io.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/optim/optim_config.h"
#include "hone/train/trainer/trainer.h"
#include "hone/train/trainer/trainer_config.h"

namespace hone::app {

// Code shared by `hone train lm` and `hone train vision`.

// nullopt becomes null.
inline Json to_json(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

// Whether the folder contains a run, finished or not.
bool holds_run(const std::filesystem::path& out);

// Makes results on the CPU reproducible bit for bit on the same machine and number of threads, and
// keeps freed memory. On another device, operators are deterministic where LibTorch has a
// deterministic one.
void prepare_libtorch(int threads, c10::Device device = at::kCPU);

// A folder in a run's folder. It keeps the parts of the initial model that a resumed run needs.
inline constexpr const char* kInitialModel = "initial_model";

// A TrainJob without its configuration.
struct RunOptions {
  std::filesystem::path out, data;  // output in `out` never overwrites `data`
  bool resume = false, fresh = false;
  double minutes = 0;
  Index min_steps = 0, max_steps = 0;
  int threads = 0;
  std::stop_token stop = {};
};

// A configuration, as checkpoints record it. `defaults` has the defaults of all keys.
struct ConfigFacts {
  ConfigEntries entries;
  Json defaults;
  std::vector<std::string> scaled = {};  // names of parameters with their own learning rate
  // Factored layers of the model that the configuration does not name, as task::to_json() gives
  // them; null if there are none.
  Json factored_layers = {};
  std::vector<Index> inner_widths = {};  // of a ResNet of which channels were removed
};
template <class Config>
ConfigFacts facts_of(Config& config) {
  return {config_entries(config), hone::to_json(Config())};
}

// The job of the same model without its teacher, in the folder control/ of a run whose
// configuration has been settled. Continues it if the run was continued.
template <class Config>
TrainJob<Config> job_alone(const TrainJob<Config>& job, const Config& settled) {
  TrainJob<Config> alone = job;
  alone.config = settled;
  alone.config.distill.alpha = 0;
  alone.config.distill.control = false;
  alone.out = job.out / "control";
  alone.minutes = 0;
  alone.resume = job.resume && holds_run(alone.out);
  alone.fresh = !alone.resume;
  return alone;
}

// The data of a run, as checkpoints record it.
struct DataFacts {
  std::string name, hash, kind, unit;  // "text", "tokens"
  std::string teacher_hash = {};       // of its weights; empty without one
};

// The folder of a run, from the first checks to the end of training.
class TrainRun {
 public:
  // Locks the folder. Throws Error{InvalidArgument} if it has a run and neither `resume` nor
  // `fresh` is set, Error{NotFound} for `resume` without a run, and Error{Resource} while another
  // process works there.
  TrainRun(RunOptions options, const trainer::TrainerConfig& config);

  // Throws Error{InvalidArgument} if a key in config.given contradicts the record of the run to
  // resume.
  template <class Config>
  void check_resumed(Config config) const {
    check_resumed(config_entries(config), config.given, hone::to_json(Config()));
  }

  // Sets the values that are measured, or taken from the resumed run. These are the number of steps
  // for --minutes, with a warm-up of at most a tenth of them unless `given` has it, and
  // amp.precision if it is auto.
  void fix(trainer::TrainerConfig& config, optim::LrConfig& lr, const ConfigKeys& given,
           trainer::Task& task) const;

  // The value of a key as the run to resume recorded it; nullopt for a new run.
  std::optional<std::string> recorded_value(const char* key) const;
  // ConfigFacts::scaled as the run to resume recorded it; nullopt for a new run.
  std::optional<std::vector<std::string>> recorded_scaled() const;
  // ConfigFacts::factored_layers as the run to resume recorded it: {"factored_layers": …}; an empty
  // object for a new run.
  Json recorded_layers() const;

  // Resumes if requested, writes train.toml and trains. `facts`, `lr` and `config` belong to the
  // settled configuration. `on_begin` is called after the earlier run is replaced or resumed.
  trainer::TrainResult train(const ConfigFacts& facts, const optim::LrConfig& lr,
                             const trainer::TrainerConfig& config, const DataFacts& data,
                             trainer::Task& task, optim::MultiTensorOptimizer& optimizer,
                             const std::function<void()>& on_begin = {}) const;

  double seconds() const;  // since construction

 private:
  void check_resumed(const ConfigEntries& entries, const ConfigKeys& given,
                     const Json& defaults) const;

  std::int64_t begin_;
  RunOptions options_;
  std::unique_ptr<FolderLock> lock_;
  std::optional<memory::MemoryMeter> meter_;  // made before the model, so that its weights count
};

template <class Config>
RunOptions options_of(const TrainJob<Config>& job) {
  return {.out = job.out,
          .data = job.config.data.path,
          .resume = job.resume,
          .fresh = job.fresh,
          .minutes = job.minutes,
          .min_steps = job.min_steps,
          .max_steps = job.max_steps,
          .threads = job.threads,
          .stop = job.stop};
}

}  // namespace hone::app
