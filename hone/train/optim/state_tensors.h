// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// Tensors that hold optimizer state.

// Whether a moment of this type is 8-bit codes, which have scales.
bool is_code(at::ScalarType type);
// Whether two tensors of one shape have their elements in the same order and distances in memory.
// Strides of dimensions of size one mean nothing: operators return any.
bool same_layout(const torch::Tensor& a, const torch::Tensor& b);
// fp32 zeros in the layouts of `params`, which are dense, each on cache lines of its own, in one
// block: it lies on few pages (huge ones where the system has them).
std::vector<torch::Tensor> zeros_in_one_block(const std::vector<const torch::Tensor*>& params);

// The type of one moment: signed codes for the first, unsigned ones for the second.
at::ScalarType moment_type(StateDtype dtype, bool is_second);
// All elements `value`, in the layout of the parameter; `scale` is made for codes.
void make_moment(const torch::Tensor& param, at::ScalarType type, float value,
                 torch::Tensor& moment, torch::Tensor& scale);
// fp32 values of a moment, in its layout, on the CPU.
torch::Tensor decode_moment(const torch::Tensor& moment, const torch::Tensor& scale);
// Stores fp32 values, rounded to nearest, as `type` in the layout of the parameter.
void encode_moment(const torch::Tensor& values, const torch::Tensor& param, at::ScalarType type,
                   torch::Tensor& moment, torch::Tensor& scale);
// Error where operators cannot write `tensor` in place: an expanded view, or one that was made in
// inference mode and is stepped outside.
void check_in_place(const std::string& op, const std::string& what, const torch::Tensor& tensor);
// The values of fp64 scalars on one device, which is waited for once.
std::vector<double> read_scalars(const std::vector<torch::Tensor>& scalars);
// (Σ |g|^p)^(1/p), max |g| for p = infinity, as an fp64 scalar on the gradient's device. For p
// above 8 the powers of finite elements may be infinite, as in PyTorch.
torch::Tensor norm_of(const torch::Tensor& grad, double p);
// Gradients that are unscaled, within ±control.clip_value where there is one.
torch::Tensor limited(const torch::Tensor& grad, const StepControl& control);
// GradWriteBack on a gradient whose update is done: `scale` unscales and clips.
void write_back(const torch::Tensor& grad, double scale, const StepControl& control);
// A copy with the layout of the parameter, on its device or another.
torch::Tensor copy_like(const torch::Tensor& value, const torch::Tensor& param,
                        std::optional<c10::Device> device = {});

}  // namespace hone::optim
