// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/machine/measurer.h"
#include "hone/train/surgery/module_call.h"

// Replaces neighboring operators of a model by one, where that is legal and measured to be faster.
namespace hone::nn {

struct FusionOptions {
  double tolerance = 1e-5;  // relative error of the outputs: of each site and of the model
  MeasureOptions measure = {.max_seconds = 1, .warns_of_drift = false};  // for each site
};

enum class FusionStatus { Found, Applied, Rejected };  // Found by analyze_fusion()

struct FusionMatch {
  std::string pattern;              // "linear_relu", "conv_bn_relu"
  std::vector<std::string> layers;  // paths
  FusionStatus status = FusionStatus::Found;
  std::string reason;            // one sentence; empty for Found
  Index intermediate_bytes = 0;  // written and read between the separate operators
  double predicted_ms = 0;       // that the intermediate results cost, by the bandwidth of a copy
  double separate_ms = 0, fused_ms = 0;  // medians; 0 if not measured
  RatioInterval speedup = {};
  double error = 0;  // relative, of the fused output
};

struct FusionReport {
  // Adjacent pairs of a linear layer and ReLU, and of a convolution and batch normalization;
  // all modules with the model itself, where a Slot and its content are one; the pairs; and their
  // share of all modules.
  Index linear_relu_pairs = 0, conv_bn_pairs = 0, total_modules = 0, fusable_modules = 0;
  double fusion_potential = 0;
  std::vector<FusionMatch> matches;  // the most measured gain first
  double error = 0;                  // relative, of the model's output
  RatioInterval speedup = {};        // of the model after fuse() over the model before
  std::string verdict;               // one sentence about the whole model; empty of an analysis
  // Undoes what fuse() has applied, or applies it again; empty of an analysis. Valid as long as the
  // model, and while these layers are not exchanged otherwise.
  std::function<void(bool on)> set_applied = {};

  Index count(FusionStatus status) const;
};
Json to_json(const FusionReport& report);

// Finds and measures the sites of a model whose forward() takes one tensor like `example`. Sites
// are in Sequentials, also in nested ones, and in modules that are Fusible (ResNet, Residual,
// SelfAttention). The model runs in evaluation mode, without gradients, and stays as it is. Throws
// Error{InvalidArgument} if the model does not take one tensor or the example is empty.
FusionReport analyze_fusion(const ModuleCall& model, const torch::Tensor& example,
                            Measurer& measurer, const FusionOptions& options = {});

// Fuses each site that is legal, within the tolerance, and faster over the whole interval of its
// measurement; then undoes all of it if the model's output left the tolerance or the model became
// slower. The matches are all sites, applied or rejected with a reason. Folded batch normalization
// needs evaluation mode, in which the model must be and must stay; all other forms train.
FusionReport fuse(const ModuleCall& model, const torch::Tensor& example, Measurer& measurer,
                  const FusionOptions& options = {});

// Fuses every legal site without a measurement. Returns how many.
Index fuse_unmeasured(torch::nn::Module& model);

}  // namespace hone::nn
