// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <filesystem>

#include "hone/core/json_io.h"
#include "hone/train/trainer/lm_config.h"

namespace hone::app {

struct TrainLmJob {
  trainer::LmConfig config;
  std::filesystem::path out;  // train.toml, metrics.csv, checkpoints/ and model/ go here
  // An earlier run in `out` is refused, unless it is to go on from its newest whole checkpoint
  // (without one: from step 0) or to be replaced.
  bool resume = false, fresh = false;
  double minutes = 0;  // > 0: fixes config.trainer.steps from a few measured steps
  int threads = 0;     // of LibTorch; 0: usable_cpus()
  const std::atomic<bool>* stop = nullptr;  // true: finish the step, save, Error{Cancelled}
};

struct TrainLmResult {
  Index steps = 0, parameters = 0;
  double train_loss = 0, val_loss = 0, val_bits_per_byte = 0, tokens_per_s = 0, seconds = 0;
  std::filesystem::path out, model;  // model: the exported Hugging Face folder
};

// Trains a Llama-family model and exports it. Error{InvalidArgument} for a run in `out` without
// `resume` or `fresh`, and where `minutes` is too short for a step; Error{NotFound} for `resume`
// without a run; Error{Resource} while another process works in `out`. `out` is then as it was.
TrainLmResult train_lm(const TrainLmJob& job);

// Is there a run, finished or not, in the folder?
bool holds_run(const std::filesystem::path& out);

// {"steps", "train_loss", "val_loss", "val_bits_per_byte", "tokens_per_s", "seconds", "parameters",
// "out", "model"}.
Json to_json(const TrainLmResult& result);

}  // namespace hone::app
