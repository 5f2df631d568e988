// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/state_tensors.h"

#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/InferenceMode.h>

#include <cmath>

#include "hone/core/buffer.h"
#include "hone/core/check.h"
#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/train/interop.h"

namespace hone::optim {
namespace {

Index padded_elements(const torch::Tensor& tensor) {
  return round_up(tensor.numel(), kCacheLine / Index{sizeof(float)});
}

kernels::NarrowChunk chunk_of(const torch::Tensor& moment, const torch::Tensor& scale) {
  return {dtype_of(moment.scalar_type(), "moment"), moment.data_ptr(),
          scale.defined() ? scale.data_ptr<float>() : nullptr, moment.numel()};
}

// Uninitialized, in the layout of the parameter, which must be dense for narrow types.
void allocate_moment(const torch::Tensor& param, at::ScalarType type, torch::Tensor& moment,
                     torch::Tensor& scale) {
  moment = at::empty_like(param, param.options().dtype(type).requires_grad(false),
                          at::MemoryFormat::Preserve);
  if (!is_code(type)) return;
  scale = at::empty({ceil_div(param.numel(), kernels::kCodeBlock)}, at::TensorOptions(at::kFloat));
}

}  // namespace

bool is_code(at::ScalarType type) { return type == at::kChar || type == at::kByte; }

bool same_layout(const torch::Tensor& a, const torch::Tensor& b) {
  for (Index d = 0; d < a.dim(); ++d) {
    if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

std::vector<torch::Tensor> zeros_in_one_block(const std::vector<const torch::Tensor*>& params) {
  Index elements = 0;
  for (const torch::Tensor* param : params) elements += padded_elements(*param);
  const c10::Device device = params.front()->device();
  const torch::Tensor block = at::empty({elements}, at::TensorOptions(at::kFloat).device(device));
  if (device.is_cpu()) advise_huge_pages(block.data_ptr(), static_cast<Index>(block.nbytes()));
  block.zero_();
  std::vector<torch::Tensor> out;
  Index begin = 0;
  for (const torch::Tensor* param : params) {
    out.push_back(block.as_strided(param->sizes(), param->strides(), begin));
    begin += padded_elements(*param);
  }
  return out;
}

at::ScalarType moment_type(StateDtype dtype, bool is_second) {
  if (dtype == StateDtype::Float32) return at::kFloat;
  if (dtype == StateDtype::BFloat16) return at::kBFloat16;
  return is_second ? at::kByte : at::kChar;
}

void make_moment(const torch::Tensor& param, at::ScalarType type, float value,
                 torch::Tensor& moment, torch::Tensor& scale) {
  if (!is_code(type)) {
    allocate_moment(param, type, moment, scale);
    moment.fill_(value);
    return;
  }
  encode_moment(at::full_like(param, value, param.options().dtype(at::kFloat)), param, type, moment,
                scale);
}

torch::Tensor decode_moment(const torch::Tensor& moment, const torch::Tensor& scale) {
  const torch::Tensor codes = moment.to(at::kCPU);
  const torch::Tensor scales = scale.defined() ? scale.to(at::kCPU) : scale;
  torch::Tensor values = at::empty_like(codes, codes.options().dtype(at::kFloat));
  kernels::decode_chunk(chunk_of(codes, scales), values.data_ptr<float>());
  return values;
}

void encode_moment(const torch::Tensor& values, const torch::Tensor& param, at::ScalarType type,
                   torch::Tensor& moment, torch::Tensor& scale) {
  if (type == at::kFloat) {
    allocate_moment(param, type, moment, scale);
    moment.copy_(values);
    return;
  }
  torch::Tensor laid_out, none;
  allocate_moment(param, at::kFloat, laid_out, none);
  laid_out.copy_(values);
  allocate_moment(param, type, moment, scale);
  kernels::encode_chunk(laid_out.data_ptr<float>(), {.nearest = true}, chunk_of(moment, scale));
}

void check_in_place(const std::string& op, const std::string& what, const torch::Tensor& tensor) {
  HONE_CHECK(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, op,
             concat("memory of its own for each element of ", what), "an expanded view");
  HONE_CHECK(!tensor.is_inference() || c10::InferenceMode::is_enabled(), op,
             concat("a ", what, " made outside of inference mode, or a step inside"), "neither");
}

std::vector<double> read_scalars(const std::vector<torch::Tensor>& scalars) {
  if (scalars.empty()) return {};
  const torch::Tensor values = at::stack(scalars).to(at::kCPU);
  const auto* data = values.data_ptr<double>();
  return {data, data + values.numel()};
}

torch::Tensor norm_of(const torch::Tensor& grad, double p) {
  if (grad.numel() == 0) return at::zeros({}, grad.options().dtype(at::kDouble));
  return at::norm(grad, p, at::kDouble);
}

torch::Tensor limited(const torch::Tensor& grad, const StepControl& control) {
  const double limit = control.grad_limit();
  return std::isinf(limit) ? grad : grad.clamp(-limit, limit);
}

void write_back(const torch::Tensor& grad, double scale, const StepControl& control) {
  if (control.grad == GradWriteBack::Zero) grad.zero_();
  if (control.grad != GradWriteBack::Unscaled) return;
  if (control.clip_value == 0) {
    grad.mul_(scale);
  } else {
    grad.copy_(limited(grad.to(at::kFloat) * scale, control));
  }
}

torch::Tensor copy_like(const torch::Tensor& value, const torch::Tensor& param,
                        std::optional<c10::Device> device) {
  torch::Tensor copy = at::empty_like(
      param, param.options().dtype(value.scalar_type()).device(device.value_or(param.device())),
      at::MemoryFormat::Preserve);
  copy.copy_(value);
  return copy;
}

}  // namespace hone::optim
