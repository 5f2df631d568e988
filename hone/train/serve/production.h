// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/machine/measurer.h"
#include "hone/train/compress/quantize.h"
#include "hone/train/fuse/fuse.h"
#include "hone/train/serve/torchscript.h"
#include "hone/train/sketch/freeze.h"
#include "hone/train/surgery/module_call.h"

// Prepares a model for inference on this machine.
namespace hone::nn {

struct ProductionOptions {
  // Exact: fold and fuse; outputs are the same up to rounding. Standard: also frozen factors of 16
  // bits and weights of 8 bits. Aggressive: also frozen factors of 8 bits and weights of 4 bits.
  FreezeLevel level = FreezeLevel::Standard;
  // For weights of 4 bits by GPTQ, and without it by rounding. Inputs of the model.
  std::vector<torch::Tensor> calibration = {};
  // Relative error of the model's output that frozen factors and codes may cause together; 0: 0.02,
  // or 0.1 for Aggressive.
  double max_error = 0;
  bool tries_script = true;  // whether TorchScript is timed beside it
  MeasureOptions measure = {.max_seconds = 1, .warns_of_drift = false};  // for each measurement
};

struct ProductionStage {
  std::string name;  // "fold", "fuse", "freeze", "quantize"
  CompressionStatus status = CompressionStatus::Skipped;
  std::string reason;                       // one sentence
  Index layers = 0;                         // that it has changed
  Index bytes_before = 0, bytes_after = 0;  // of the model's parameters and buffers
  double error = 0;                         // of the model's output so far, relative
  RatioInterval speedup = {};               // over the model before the stage
};

struct ProductionReport {
  std::vector<ProductionStage> stages;  // in their order
  Index bytes_before = 0, bytes_after = 0;
  double error = 0;                    // relative, of the model's output
  double agreement = 1;                // the share of rows with the same largest output
  RatioInterval speedup = {};          // of the whole
  std::optional<ScriptReport> script;  // of the model as it was
  std::string verdict;                 // one sentence

  FusionReport fusion;
  std::optional<QuantizeReport> quantization;
};
Json to_json(const ProductionReport& report);

std::optional<FreezeLevel> find_level(std::string_view name);  // "exact", "standard", "aggressive"

// Changes a model in place, stage by stage: folds batch normalization into convolutions, fuses
// neighboring operators, freezes factored layers, and stores weights in few bits. Each stage is
// applied, skipped or failed with a reason and what was measured on the example; a stage whose
// model is slower over its whole interval, or whose error is above the limit, is undone. The model
// must be in evaluation mode and stay in it. Throws Error{InvalidArgument} for an empty example, a
// model in training mode, or options that are not valid.
ProductionReport optimize_for_production(const ModuleCall& model, const torch::Tensor& example,
                                         Measurer& measurer, const ProductionOptions& options = {});

}  // namespace hone::nn
