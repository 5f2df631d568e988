// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "hone/app/torch/train_job.h"
#include "hone/core/json_io.h"
#include "hone/train/trainer/lm_config.h"

namespace hone::app {

using TrainLmJob = TrainJob<trainer::LmConfig>;

struct TrainLmResult {
  Index steps = 0, parameters = 0;
  double train_loss = 0, val_loss = 0, val_bits_per_byte = 0;
  double tokens_per_s = 0, loop_share = 0;  // TrainResult's
  double seconds = 0;
  std::filesystem::path out, model;  // model: the exported Hugging Face folder
};

// Trains a Llama-family model and exports it. Error{InvalidArgument} for a run in `out` without
// `resume` or `fresh`, and where `minutes` is too short for a step; Error{NotFound} for `resume`
// without a run; Error{Resource} while another process works in `out`. `out` is then as it was.
TrainLmResult train_lm(const TrainLmJob& job);

// {"steps", "train_loss", "val_loss", "val_bits_per_byte", "tokens_per_s", "loop_share", "seconds",
// "parameters", "out", "model"}.
Json to_json(const TrainLmResult& result);

}  // namespace hone::app
