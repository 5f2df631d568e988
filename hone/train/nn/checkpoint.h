// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

namespace hone::nn {

using Tensors = std::vector<torch::Tensor>;
using Segment = std::function<Tensors(const Tensors&)>;

// segment(inputs), whose intermediate results are dropped and computed again in the backward pass:
// of the forward pass only `inputs` stay. The second computation runs from the same random state
// (of the CPU and of the inputs' devices) and under the same autocast settings, and leaves both as
// they were; gradients have the bits that they have without it (but for a weight that autocast
// casts once for uses inside and outside: that is cast twice). Weights that the segment captures
// get their gradients too, in .grad. Inputs may be undefined or need no gradient.
//
// The segment must be a pure function of inputs and weights, and change neither in place
// (Error{Internal} when the second computation gives other shapes; LibTorch's own error for a
// changed input); what it captures lives as long as the graph. Only through backward(): with
// autograd::grad(), with backward(inputs=…) and with create_graph it is Error{Unsupported}.
// Without gradients (NoGradGuard) it is segment(inputs).
Tensors checkpoint(Segment segment, const Tensors& inputs);

}  // namespace hone::nn
