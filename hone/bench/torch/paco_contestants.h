// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>

#include "hone/core/index.h"

namespace hone::bench {

// The same work for all: parts of two views that require gradients, matched in order, and the
// options of part contrast.
struct PartContrastWork {
  torch::Tensor z1, z2;   // [batch, parts, dim] in fp64
  torch::Tensor targets;  // int64 [batch]
};

// Part contrast with semi-hard negatives of other images and classes, a relative delta and
// distances over sqrt(dim): returns the loss, differentiable. `way`: hone, dense, operators, loops.
// Error{InvalidArgument} for another.
using PartContrastRun = std::function<torch::Tensor(const PartContrastWork&)>;
PartContrastRun part_contrast_run(const std::string& way);

// The share of anchors with an active hinge. Where it is 0, the loss and all gradients are 0.
double active_share(const PartContrastWork& work);

}  // namespace hone::bench
