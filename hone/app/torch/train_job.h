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
  // An earlier run in `out` is an error, unless it ended before its first checkpoint. `resume`
  // continues it from its newest complete checkpoint, or from step 0 without one. `fresh` replaces
  // it.
  bool resume = false, fresh = false;
  // If > 0, sets config.trainer.steps so that training takes this long, by the time of a few
  // measured steps. The bounds limit it (0: no bound). A resumed run keeps its own number of steps.
  double minutes = 0;
  Index min_steps = 0, max_steps = 0;
  int threads = 0;            // LibTorch threads; 0: usable_cpus()
  std::stop_token stop = {};  // requested: finish the step, save, Error{Cancelled}
};

// Whether a run's folder contains a checkpoint, damaged or not.
bool holds_checkpoint(const std::filesystem::path& out);
// Throws Error{NotFound} unless the folder contains a run, finished or not.
void check_run_to_resume(const std::filesystem::path& out);

}  // namespace hone::app
