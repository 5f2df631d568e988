// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

namespace hone::nn {

using Tensors = std::vector<torch::Tensor>;
using Segment = std::function<Tensors(const Tensors&)>;

// Runs segment(inputs) and drops its intermediate results. Keeps only `inputs`; the backward pass
// computes the rest again. The second computation starts from the same random state (of the CPU and
// of the inputs' devices) and uses the same autocast settings. It restores both afterwards.
// Gradients are bit-identical to those without recompute(). The exception is a weight that is used
// inside and outside of the segment: autocast casts it twice instead of once. Weights that the
// segment captures also get their gradients, in .grad. Inputs may be undefined or require no
// gradient.
//
// The segment must be a pure function of inputs and weights and change neither in place. Otherwise,
// the second computation throws Error{Internal} for other shapes, or LibTorch's own error for a
// changed input. Captured objects live as long as the graph. Supports only backward():
// autograd::grad(), backward(inputs=…) and create_graph throw Error{Unsupported}. Without gradients
// (NoGradGuard), returns segment(inputs).
Tensors recompute(Segment segment, const Tensors& inputs);

}  // namespace hone::nn
