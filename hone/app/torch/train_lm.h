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
  bool resume = false;        // from the newest whole checkpoint in `out`, if there is one
  double minutes = 0;         // > 0: fixes config.trainer.steps from a few measured steps
  int threads = 0;            // of LibTorch; 0: usable_cpus()
  const std::atomic<bool>* stop = nullptr;  // true: finish the step, save, Error{Cancelled}
};

struct TrainLmResult {
  Index steps = 0, parameters = 0;
  double train_loss = 0, val_loss = 0, val_bits_per_byte = 0, tokens_per_s = 0, seconds = 0;
  std::filesystem::path out, model;  // model: the exported Hugging Face folder
};

// Trains a Llama-family model and exports it. Without `resume`, a run that lies in `out` is
// replaced.
TrainLmResult train_lm(const TrainLmJob& job);

// {"steps", "train_loss", "val_loss", "val_bits_per_byte", "tokens_per_s", "seconds", "parameters",
// "out", "model"}.
Json to_json(const TrainLmResult& result);

}  // namespace hone::app
