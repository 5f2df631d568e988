// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>

#include "hone/app/torch/distillation.h"
#include "hone/app/torch/train_job.h"
#include "hone/core/file/json_io.h"
#include "hone/train/task/vision/vision_config.h"

namespace hone::app {

using TrainVisionJob = TrainJob<task::VisionConfig>;

struct TrainVisionResult {
  Index steps = 0, skipped_steps = 0, parameters = 0, classes = 0;
  Index broken_images = 0;                         // number of skipped images of a folder
  std::optional<double> train_loss, images_per_s;  // copied from TrainResult, as is loop_share
  double val_loss = 0, val_accuracy = 0;
  double loop_share = 0, seconds = 0;
  Index model_step = 0;  // the step whose weights the model has
  Json amp;              // amp::to_json() of the run
  std::string method;    // loss.method
  std::string guard;     // worst finding of the collapse guard; empty if it was off
  Json objective;        // Objective::report()
  std::optional<Distillation> distillation;  // with a teacher
  std::filesystem::path out, model;          // model has model.safetensors and config.json
};

// Trains an image classifier and writes it. Errors and the use of `out` are as in train_lm().
TrainVisionResult train_vision(const TrainVisionJob& job);

// {"steps", "skipped_steps", "train_loss", "val_loss", "val_accuracy", "images_per_s",
// "loop_share", "seconds", "model_step", "amp", "parameters", "classes", "broken_images", "method",
// "guard", "objective", "distillation", "out", "model"}; absent values are null.
Json to_json(const TrainVisionResult& result);

}  // namespace hone::app
