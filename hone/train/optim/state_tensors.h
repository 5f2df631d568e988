// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// Tensors of optimizer state.

// Whether a moment of this type is 8-bit codes, which have scales.
bool is_code(at::ScalarType type);
// True if two tensors of one shape have the same order and distances of elements in memory. Strides
// of dimensions of size 1 are ignored, because operators may return any.
bool same_layout(const torch::Tensor& a, const torch::Tensor& b);
// Returns fp32 zeros in the layouts of `params`, which must be dense. All are in one block, each on
// its own cache lines, so that they occupy few pages (huge ones if the system has them).
std::vector<torch::Tensor> zeros_in_one_block(const std::vector<const torch::Tensor*>& params);

// The type of one moment: signed codes for the first, unsigned ones for the second.
at::ScalarType moment_type(StateDtype dtype, bool is_second);
// Creates a moment in the layout of the parameter, with all elements `value`, and `scale` for
// codes.
void make_moment(const torch::Tensor& param, at::ScalarType type, float value,
                 torch::Tensor& moment, torch::Tensor& scale);
// fp32 values of a moment, in its layout, on the CPU.
torch::Tensor decode_moment(const torch::Tensor& moment, const torch::Tensor& scale);
// Stores fp32 values, rounded to nearest, as `type` in the layout of the parameter.
void encode_moment(const torch::Tensor& values, const torch::Tensor& param, at::ScalarType type,
                   torch::Tensor& moment, torch::Tensor& scale);
// Throws an error if operators cannot write `tensor` in place: an expanded view, or a tensor from
// inference mode that is stepped outside of it.
void check_in_place(const std::string& op, const std::string& what, const torch::Tensor& tensor);
// Returns the values of fp64 scalars on one device. Waits for the device once.
std::vector<double> read_scalars(const std::vector<torch::Tensor>& scalars);
// (Σ |g|^p)^(1/p), max |g| for p = infinity, as an fp64 scalar on the gradient's device. For p
// above 8 the powers of finite elements may be infinite, as in PyTorch.
torch::Tensor norm_of(const torch::Tensor& grad, double p);
// Clamps unscaled gradients to ±control.clip_value, if set.
torch::Tensor limited(const torch::Tensor& grad, const StepControl& control);
// Applies GradWriteBack to a gradient after its update; `scale` unscales and clips.
void write_back(const torch::Tensor& grad, double scale, const StepControl& control);
// A copy with the layout of the parameter, on its device or another.
torch::Tensor copy_like(const torch::Tensor& value, const torch::Tensor& param,
                        std::optional<c10::Device> device = {});

}  // namespace hone::optim
