// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>

#include "hone/core/index.h"

namespace hone::bench {

// The input of all contestants: parts of two views, which require gradients and are matched in
// order.
struct PartContrastWork {
  torch::Tensor z1, z2;   // [batch, parts, dim] in fp64
  torch::Tensor targets;  // int64 [batch]
};

// Part contrast with semi-hard negatives of other images and classes, a relative delta and
// distances over sqrt(dim). Returns the differentiable loss. `way` is hone, dense, operators or
// loops. Throws Error{InvalidArgument} for another one.
using PartContrastRun = std::function<torch::Tensor(const PartContrastWork&)>;
PartContrastRun part_contrast_run(const std::string& way);

// The share of anchors with an active hinge. Where it is 0, the loss and all gradients are 0.
double active_share(const PartContrastWork& work);

}  // namespace hone::bench
