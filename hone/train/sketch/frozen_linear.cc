// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/frozen_linear.h"

#include <ATen/ATen.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/format/quant_format.h"
#include "hone/kernels/gemm/gemm.h"
#include "hone/train/interop.h"
#include "hone/train/sketch/factor_products.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr std::string_view kFrozen = "FrozenLinear";
constexpr Index kCodeGroup = 32;

}  // namespace

// Panels of both matrices, and the buffers that they were made of.
struct FrozenLinearImpl::Packed {
  kernels::PackedMatrix a, b;
  Sources sources;
};

FrozenLinearImpl::FrozenLinearImpl(const FrozenLinearOptions& options) : options_(options) {
  check_size(kFrozen, {options.in_features, options.out_features, options.rank});
  reset();
}

void FrozenLinearImpl::reset() {
  a_ = register_matrix("a", options_.rank, options_.in_features);
  b_ = register_matrix("b", options_.out_features, options_.rank);
  if (options_.bias) bias_ = register_buffer("bias", at::zeros({options_.out_features}));
  packed_ = nullptr;
}

FrozenLinearImpl::Stored FrozenLinearImpl::register_matrix(const std::string& name, Index rows,
                                                           Index cols) {
  Stored stored;
  stored.cols = cols;
  if (options_.type == FrozenType::Int8) {
    const Index groups = (cols + kCodeGroup - 1) / kCodeGroup;
    stored.values = register_buffer(name, at::zeros({rows, groups * kCodeGroup}, at::kChar));
    stored.scales = register_buffer(name + "_scales", at::zeros({rows, groups}));
  } else {
    const bool is_f32 = options_.type == FrozenType::Float32;
    stored.values =
        register_buffer(name, at::zeros({rows, cols}, is_f32 ? at::kFloat : at::kBFloat16));
  }
  return stored;
}

void FrozenLinearImpl::round_to(Stored& stored, const Tensor& matrix) const {
  const at::NoGradGuard no_grad;
  HONE_CHECK(
      matrix.dim() == 2 && matrix.size(0) == stored.values.size(0) && matrix.size(1) == stored.cols,
      kFrozen, concat("a factor [", stored.values.size(0), ", ", stored.cols, "]"),
      c10::str(matrix.sizes()));
  if (options_.type != FrozenType::Int8) {
    stored.values.copy_(matrix);
    return;
  }
  const Index padding = stored.values.size(1) - stored.cols;
  const Tensor groups = at::constant_pad_nd(matrix.detach().to(at::kFloat), {0, padding})
                            .view({matrix.size(0), -1, kCodeGroup});
  const Tensor scales = groups.abs().amax(2) / 127;
  const Tensor divisor = at::where(scales > 0, scales, 1.0f).unsqueeze(2);
  stored.values.copy_((groups / divisor).round().view_as(stored.values));
  stored.scales.copy_(scales);
}

Tensor FrozenLinearImpl::decode(const Stored& stored) const {
  const Tensor values = stored.values.to(at::kFloat);
  if (options_.type != FrozenType::Int8) return values;
  return (values.view({values.size(0), -1, kCodeGroup}) * stored.scales.unsqueeze(2))
      .view_as(values)
      .narrow(1, 0, stored.cols);
}

std::pair<Tensor, Tensor> FrozenLinearImpl::factors() const { return {decode(a_), decode(b_)}; }

void FrozenLinearImpl::set_factors(const Tensor& a, const Tensor& b) {
  round_to(a_, a);
  round_to(b_, b);
}

bool FrozenLinearImpl::is_packed() const {
  return packed_ && packed_->sources.are({a_.values, a_.scales, b_.values, b_.scales});
}

Tensor FrozenLinearImpl::multiply_packed(const Tensor& x) {
  Executor& executor = libtorch_executor();
  if (!is_packed()) {
    const auto pack_one = [&](const Stored& stored) {
      StoredMatrix matrix;
      matrix.rows = stored.values.size(0);
      matrix.cols = stored.cols;
      matrix.act_int8 = false;
      const Tensor values = stored.values.contiguous();
      const Tensor scales = stored.scales.defined() ? stored.scales.contiguous() : Tensor();
      if (options_.type == FrozenType::Int8) {
        matrix.layout = WeightLayout::Canonical;
        matrix.quant = {.spec = {.kind = CodeKind::Int,
                                 .bits = 8,
                                 .span = ScaleSpan::Group,
                                 .group = kCodeGroup,
                                 .symmetric = true,
                                 .scale_dtype = Dtype::Float32},
                        .rows = matrix.rows,
                        .cols = matrix.cols,
                        .codes = tensor_bytes(values),
                        .scales = tensor_bytes(scales),
                        .zeros = {}};
      } else {
        matrix.dtype = Dtype::BFloat16;
        matrix.bytes = tensor_bytes(values);
      }
      return kernels::pack(matrix, executor);
    };
    auto fresh = std::make_shared<Packed>();
    fresh->a = pack_one(a_);
    fresh->b = pack_one(b_);
    fresh->sources.set({a_.values, a_.scales, b_.values, b_.scales});
    packed_ = fresh;
  }
  const Index rows = x.size(0);
  const Tensor hidden = at::empty({rows, options_.rank}, x.options());
  const Tensor y = at::empty({rows, options_.out_features}, x.options());
  const Tensor bias = bias_.defined() ? bias_.contiguous() : Tensor();
  kernels::gemm(x.data_ptr<float>(), rows, options_.in_features,
                {.weight = &packed_->a,
                 .y = hidden.data_ptr<float>(),
                 .y_stride = options_.rank,
                 .epilogue = {}},
                executor);
  kernels::gemm(hidden.data_ptr<float>(), rows, options_.rank,
                {.weight = &packed_->b,
                 .y = y.data_ptr<float>(),
                 .y_stride = options_.out_features,
                 .epilogue = {.bias = bias.defined() ? bias.data_ptr<float>() : nullptr}},
                executor);
  return y;
}

Tensor FrozenLinearImpl::forward(const Tensor& x) {
  HONE_CHECK(x.dim() >= 1 && x.size(-1) == options_.in_features, kFrozen,
             concat("x [..., ", options_.in_features, "]"), c10::str(x.sizes()));
  HONE_CHECK(x.is_floating_point(), kFrozen, "x of floating point", at::toString(x.scalar_type()));
  auto sizes = x.sizes().vec();
  sizes.back() = options_.out_features;
  const bool wants_grad = at::GradMode::is_enabled() && x.requires_grad();
  const bool is_f32 = options_.type == FrozenType::Float32;
  if (wants_grad || !x.device().is_cpu() || x.scalar_type() != at::kFloat || x.numel() == 0) {
    const auto [a, b] = factors();
    const Tensor hidden = at::linear(x, a.to(x.scalar_type()));
    const std::optional<Tensor> bias =
        bias_.defined() ? std::optional(bias_.to(x.scalar_type())) : std::nullopt;
    return detail::activated(options_.activation, at::linear(hidden, b.to(x.scalar_type()), bias));
  }
  const at::NoGradGuard no_grad;
  const Tensor rows = x.detach().reshape({-1, options_.in_features}).contiguous();
  if (!is_f32) {
    return detail::activate(options_.activation, multiply_packed(rows), false).view(sizes);
  }
  const detail::FactorProducts products{
      .cpu = {.backend = resolve(MatmulBackend::Auto), .type = at::kFloat},
      .type = at::kFloat,
      .uses_matmul = true};
  const auto [a, b] = factors();
  Tensor y = products.by_rows(products.by_rows(rows, a), b);
  if (bias_.defined()) y.add_(bias_);
  return detail::activate(options_.activation, y, false).view(sizes);
}

LayerFacts FrozenLinearImpl::facts() const {
  const FactorSize size{options_.in_features, options_.out_features, options_.rank};
  LayerFacts facts;
  for (const Tensor& buffer : buffers()) facts.stored_bytes += static_cast<Index>(buffer.nbytes());
  facts.resident_bytes = facts.stored_bytes;
  if (packed_) facts.resident_bytes += packed_->a.bytes() + packed_->b.bytes();
  facts.forward_flops = facts.backward_flops = 2 * size.numbers();
  facts.break_even = size.break_even();
  return facts;
}

FrozenLinear freeze(FactoredLinearImpl& layer, FrozenType type) {
  const FactoredLinearOptions& from = layer.options();
  FrozenLinear out(FrozenLinearOptions{.in_features = from.in_features,
                                       .out_features = from.out_features,
                                       .rank = from.rank,
                                       .type = type,
                                       .bias = from.bias,
                                       .activation = from.epilogue.activation});
  out->to(layer.first().device());
  const auto [a, b] = layer.factors();
  out->set_factors(a, b.t());
  const at::NoGradGuard no_grad;
  if (from.bias) Tensor(out->bias()).copy_(layer.bias());
  out->eval();
  return out;
}

}  // namespace hone::nn
