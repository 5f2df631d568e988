// SPDX-License-Identifier: Apache-2.0
#include "hone/train/compress/stored_weight.h"

#include <ATen/ATen.h>

#include <cstring>
#include <span>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/format/matrix_type.h"
#include "hone/kernels/gemm/gemm.h"

namespace hone::nn {
namespace {

using torch::Tensor;

Tensor copy_of(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  const Tensor out = at::empty({static_cast<Index>(bytes.size())}, at::kByte);
  std::memcpy(out.data_ptr(), bytes.data(), bytes.size());
  return out;
}

}  // namespace

struct StoredWeight::Packed {
  kernels::PackedMatrix matrix;
  Sources sources;
};

StoredWeight::StoredWeight(const StoredMatrix& matrix) : shape_(matrix) {
  const bool is_canonical = matrix.layout == WeightLayout::Canonical;
  codes_ = copy_of(is_canonical ? matrix.quant.codes : matrix.bytes);
  if (is_canonical) {
    scales_ = copy_of(matrix.quant.scales);
    zeros_ = copy_of(matrix.quant.zeros);
  }
  shape_.bytes = shape_.quant.codes = shape_.quant.scales = shape_.quant.zeros = {};
}

void StoredWeight::register_in(torch::nn::Module& owner, const std::string& name) {
  codes_ = owner.register_buffer(name + "_codes", codes_);
  if (scales_.defined()) scales_ = owner.register_buffer(name + "_scales", scales_);
  if (zeros_.defined()) zeros_ = owner.register_buffer(name + "_zeros", zeros_);
}

StoredWeight StoredWeight::fresh() const {
  StoredWeight out;
  out.shape_ = shape_;
  const auto zeros_like = [](const Tensor& tensor) {
    return tensor.defined() ? at::zeros_like(tensor) : tensor;
  };
  out.codes_ = zeros_like(codes_);
  out.scales_ = zeros_like(scales_);
  out.zeros_ = zeros_like(zeros_);
  return out;
}

std::string StoredWeight::format() const { return type_text(shape_); }

StoredMatrix StoredWeight::matrix() const {
  HONE_CHECK(codes_.device().is_cpu(), "quantize", "codes on the CPU", codes_.device().str());
  StoredMatrix out = shape_;
  if (shape_.layout == WeightLayout::Canonical) {
    out.quant.codes = tensor_bytes(codes_);
    out.quant.scales = tensor_bytes(scales_);
    out.quant.zeros = tensor_bytes(zeros_);
  } else {
    out.bytes = tensor_bytes(codes_);
  }
  return out;
}

Index StoredWeight::bytes() const {
  Index sum = 0;
  for (const Tensor& buffer : buffers()) {
    if (buffer.defined()) sum += static_cast<Index>(buffer.nbytes());
  }
  return sum;
}

Index StoredWeight::resident_bytes() const {
  Index sum = bytes();
  if (packed_) sum += packed_->matrix.bytes();
  if (decoded_.defined()) sum += static_cast<Index>(decoded_.nbytes());
  return sum;
}

Tensor StoredWeight::decoded(bool keep) {
  if (decoded_.defined() && decoded_sources_.are(buffers())) return decoded_;
  const at::NoGradGuard no_grad;
  StoredWeight host = *this;
  for (Tensor* buffer : {&host.codes_, &host.scales_, &host.zeros_}) {
    if (buffer->defined()) *buffer = buffer->to(at::kCPU);
  }
  Tensor out = at::empty({rows(), cols()}, at::kFloat);
  decode(host.matrix(), {out.data_ptr<float>(), static_cast<std::size_t>(out.numel())});
  out = out.to(codes_.device());
  decoded_ = keep ? out : Tensor();
  if (keep) decoded_sources_.set(buffers());
  return out;
}

void StoredWeight::prepare() {
  if (packed_ && packed_->sources.are(buffers())) return;
  auto fresh = std::make_shared<Packed>();
  fresh->matrix = kernels::pack(matrix(), libtorch_executor());
  fresh->sources.set(buffers());
  packed_ = fresh;
}

void StoredWeight::multiply(const float* x, Index count, float* y, Index y_stride,
                            const float* bias, const float* residual, Executor& executor) {
  prepare();
  const kernels::GemmOutput output{
      .weight = &packed_->matrix,
      .y = y,
      .y_stride = y_stride,
      .epilogue = {.bias = bias, .residual = residual, .residual_stride = y_stride}};
  thread_local kernels::PackedRows packed_rows;
  if (packed_->matrix.preferred_act() == kernels::Act::Int8) {
    kernels::quantize_rows(x, count, cols(), cols(), packed_rows, executor);
  } else {
    kernels::interleave_rows(x, count, cols(), cols(), packed_rows, executor);
  }
  kernels::gemm({.x = packed_rows, .outputs = {&output, 1}, .executor = executor});
}

bool takes_packed_kernels(const Tensor& x) {
  const bool wants_grad = at::GradMode::is_enabled() && x.requires_grad();
  return !wants_grad && x.device().is_cpu() && x.scalar_type() == at::kFloat && x.numel() > 0;
}

}  // namespace hone::nn
