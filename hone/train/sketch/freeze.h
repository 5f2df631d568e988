// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/container/any.h>

#include <string>
#include <vector>

#include "hone/core/machine/measurer.h"
#include "hone/train/sketch/factored_linear.h"

namespace hone::nn {

enum class FreezeLevel {
  Exact,       // the dense layer of the same weight, and f32 factors without padding
  Standard,    // also a smaller rank, and factors in bf16
  Aggressive,  // also factors in int8
};

struct FreezeOptions {
  FreezeLevel level = FreezeLevel::Standard;
  double tolerance = 1e-5;  // relative error of the outputs on the sample
  MeasureOptions measure = {};
};

// A candidate form of the layer.
struct FreezeTrial {
  std::string name;  // "dense", "f32", "bf16", "int8", "rank 48"
  double error = 0;
  RatioInterval speedup = {};  // over the unchanged layer; 1 if the error is above the tolerance
  bool is_chosen = false;
  std::string reason;  // one sentence
};

struct FrozenChoice {
  torch::nn::AnyModule layer;  // maps x to y without gradients of the weights
  std::vector<FreezeTrial> trials;
};

// Returns the fastest form of a layer for inference on batches like `sample` [..., in_features].
// The form must be within the tolerance and faster over the whole interval of the measurement.
// Otherwise returns the layer unchanged. Puts the layer in evaluation mode. Throws
// Error{InvalidArgument} for an empty sample.
FrozenChoice freeze_measured(const FactoredLinear& layer, const torch::Tensor& sample,
                             Measurer& measurer, const FreezeOptions& options = {});

}  // namespace hone::nn
