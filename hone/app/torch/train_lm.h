// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>

#include "hone/app/torch/distillation.h"
#include "hone/app/torch/train_job.h"
#include "hone/core/file/json_io.h"
#include "hone/train/task/lm/lm_config.h"

namespace hone::app {

using TrainLmJob = TrainJob<task::LmConfig>;

struct TrainLmResult {
  Index steps = 0, skipped_steps = 0, parameters = 0;
  std::optional<double> train_loss, tokens_per_s;  // copied from TrainResult, as is loop_share
  double val_loss = 0, val_bits_per_byte = 0;
  double loop_share = 0, seconds = 0;
  Index model_step = 0;                      // the step whose weights the model has
  Json amp;                                  // amp::to_json() of the run
  std::optional<Distillation> distillation;  // with a teacher
  std::filesystem::path out, model;          // model is the exported Hugging Face folder
};

// Trains a Llama-family model and exports it. Throws Error{InvalidArgument} for a run in `out`
// without `resume` or `fresh` and for `minutes` that are too short for a step, Error{NotFound} for
// `resume` without a run, and Error{Resource} while another process works in `out`; in these cases,
// `out` is unchanged.
TrainLmResult train_lm(const TrainLmJob& job);

// {"steps", "skipped_steps", "train_loss", "val_loss", "val_bits_per_byte", "tokens_per_s",
// "loop_share", "seconds", "model_step", "amp", "parameters", "distillation", "out", "model"};
// absent values are null.
Json to_json(const TrainLmResult& result);

}  // namespace hone::app
