// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <stop_token>

#include "hone/core/index.h"

namespace hone::app {

template <class Config>
struct TrainJob {
  Config config;
  std::filesystem::path out;  // train.toml, metrics.csv, checkpoints/ and model/ go here
  // An earlier run in `out` is an error, unless it is to continue from its newest complete
  // checkpoint (or from step 0 without one) or to be replaced, or it ended before its first
  // checkpoint.
  bool resume = false, fresh = false;
  // > 0: fixes config.trainer.steps from a few measured steps, within these bounds (0: none); on
  // resume they are the run's.
  double minutes = 0;
  Index min_steps = 0, max_steps = 0;
  int threads = 0;            // of LibTorch; 0: usable_cpus()
  std::stop_token stop = {};  // requested: finish the step, save, Error{Cancelled}
};

// Whether a run's folder contains a checkpoint, damaged or not.
bool holds_checkpoint(const std::filesystem::path& out);
// Throws Error{NotFound} unless the folder contains a run, finished or not.
void check_run_to_resume(const std::filesystem::path& out);

}  // namespace hone::app
