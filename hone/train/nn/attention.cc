// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/attention.h"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <array>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/attention/rope.h"
#include "hone/kernels/norm/rms_norm.h"
#include "hone/kernels/norm/rms_norm_grad.h"
#include "hone/train/first_derivative.h"
#include "hone/train/interop.h"
#include "hone/train/nn/arguments.h"
#include "hone/train/nn/ops.h"

namespace hone::nn {
namespace {

using detail::data_of;
using detail::optional_of;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::optional<double> scale_of(double scale) {
  return scale > 0 ? std::optional(scale) : std::nullopt;
}

// Views count·head_dim columns of [batch, positions, …] rows as [batch, count, positions,
// head_dim].
Tensor heads_of(const Tensor& rows, Index first, Index count, Index head_dim) {
  return rows.view({rows.size(0), rows.size(1), -1, head_dim})
      .narrow(2, first, count)
      .transpose(1, 2);
}

// The heads of q or of k: columns of rows of qkv, and of rows of q and k alone.
struct Part {
  Index first, count;
};
std::array<Part, 2> parts_of(const HeadLayout& layout) {
  return {{{0, layout.heads}, {layout.heads, layout.kv_heads}}};
}
Tensor columns_of(const Tensor& rows, const Part& part, Index head_dim) {
  return rows.narrow(2, part.first * head_dim, part.count * head_dim);
}

// Rotates the heads of x [batch, positions, heads of one part] into y of the same shape. Rows are
// x_stride and y_stride elements apart.
void rotate(const Tensor& x, Index x_stride, const Tensor& y, Index y_stride, const RopeTable& rope,
            Index head_dim, bool inverse = false) {
  kernels::apply_rope({.x = data_of(x),
                       .x_stride = x_stride,
                       .y = data_of(y),
                       .y_stride = y_stride,
                       .rows = x.size(0) * x.size(1),
                       .heads = x.size(2) / head_dim,
                       .head_dim = head_dim,
                       .dims = head_dim,
                       .positions = x.size(1),
                       .cosine = data_of(rope.cos),
                       .sine = data_of(rope.sin),
                       .inverse = inverse},
                      libtorch_executor());
}

// Normalizes contiguous x in place, each weight.numel() elements; returns 1/rms of each.
Tensor normalize(const Tensor& x, const Tensor& weight, double eps) {
  const Index cols = weight.numel(), rows = x.numel() / cols;
  const Tensor inverse_rms = at::empty({rows}, x.options());
  kernels::rms_norm({.x = data_of(x),
                     .x_stride = cols,
                     .weight = data_of(weight),
                     .y = data_of(x),
                     .y_stride = cols,
                     .inverse_rms = data_of(inverse_rms),
                     .rows = rows,
                     .cols = cols,
                     .epsilon = static_cast<float>(eps)},
                    libtorch_executor());
  return inverse_rms;
}

// The gradients with respect to x and weight, from contiguous x and grad.
std::pair<Tensor, Tensor> normalize_grad(const Tensor& x, const Tensor& weight,
                                         const Tensor& inverse_rms, const Tensor& grad) {
  const Tensor by_x = at::empty_like(x), by_weight = at::empty_like(weight);
  kernels::rms_norm_grad({.rows = inverse_rms.numel(),
                          .cols = weight.numel(),
                          .x = data_of(x),
                          .weight = data_of(weight),
                          .inverse_rms = data_of(inverse_rms),
                          .grad_y = data_of(grad),
                          .grad_x = data_of(by_x),
                          .grad_weight = data_of(by_weight)},
                         libtorch_executor());
  return {by_x, by_weight};
}

// What a call has besides tensors with gradients.
struct Constants {
  RopeTable rope;
  Tensor mask;
  HeadLayout layout;
  double eps, scale;
};

// Order: norms of q and k, RoPE, attention. The norms' results are not kept, only 1/rms.
struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& qkv,
                        const std::optional<Tensor>& q_norm, const std::optional<Tensor>& k_norm,
                        const Constants& constants) {
    const auto& [rope, mask, layout, eps, scale] = constants;
    const Index batch = qkv.size(0), positions = qkv.size(1), head_dim = layout.head_dim;
    const Index turned = layout.heads + layout.kv_heads;
    HONE_TRACE_ZONE("attention", {"batch", batch}, {"positions", positions},
                    {"heads", layout.heads});
    const Tensor roped = at::empty({batch, positions, turned * head_dim}, qkv.options());
    const std::array<Tensor, 2> norms{q_norm.value_or(Tensor()), k_norm.value_or(Tensor())};
    std::array<Tensor, 2> inverse_rms;
    for (std::size_t i = 0; i < norms.size(); ++i) {
      const Part part = parts_of(layout)[i];
      Tensor heads = columns_of(qkv, part, head_dim);
      Index stride = layout.width();
      if (norms[i].defined()) {
        heads = heads.clone(at::MemoryFormat::Contiguous);
        stride = heads.size(2);
        inverse_rms[i] = normalize(heads, norms[i], eps);
      }
      rotate(heads, stride, columns_of(roped, part, head_dim), roped.size(2), rope, head_dim);
    }
    const auto [out, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        heads_of(roped, 0, layout.heads, head_dim),
        heads_of(roped, layout.heads, layout.kv_heads, head_dim),
        heads_of(qkv, turned, layout.kv_heads, head_dim), /*dropout_p=*/0.0, /*is_causal=*/true,
        optional_of(mask), scale_of(scale));
    context->save_for_backward({qkv, roped, out, log_sums, rope.cos, rope.sin, mask, norms[0],
                                norms[1], inverse_rms[0], inverse_rms[1]});
    context->saved_data["heads"] = layout.heads;
    context->saved_data["kv_heads"] = layout.kv_heads;
    context->saved_data["scale"] = scale;
    return out.transpose(1, 2).reshape({batch, positions, layout.heads * head_dim});
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative("attention");
    const auto saved = context->get_saved_variables();
    const Tensor &qkv = saved[0], &roped = saved[1], &mask = saved[6];
    const RopeTable rope{saved[4], saved[5]};
    HeadLayout layout{context->saved_data["heads"].toInt(), context->saved_data["kv_heads"].toInt(),
                      0};
    const Index turned = layout.heads + layout.kv_heads;
    const Index head_dim = layout.head_dim = qkv.size(2) / (turned + layout.kv_heads);
    HONE_TRACE_ZONE("attention backward", {"batch", qkv.size(0)}, {"positions", qkv.size(1)},
                    {"heads", layout.heads});
    const auto [by_q, by_k, by_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        heads_of(grads[0].contiguous(), 0, layout.heads, head_dim),
        heads_of(roped, 0, layout.heads, head_dim),
        heads_of(roped, layout.heads, layout.kv_heads, head_dim),
        heads_of(qkv, turned, layout.kv_heads, head_dim), saved[2], saved[3], /*dropout_p=*/0.0,
        /*is_causal=*/true, optional_of(mask), scale_of(context->saved_data["scale"].toDouble()));
    const Tensor by_qkv = at::empty_like(qkv);
    const std::array<Tensor, 2> by_roped{by_q, by_k};
    std::array<Tensor, 2> by_norms;
    for (std::size_t i = 0; i < by_roped.size(); ++i) {
      const Part part = parts_of(layout)[i];
      const Tensor &norm = saved[7 + i], target = columns_of(by_qkv, part, head_dim);
      const Tensor rows = by_roped[i].transpose(1, 2).contiguous().flatten(2);
      const Index stride = rows.size(2);
      if (!norm.defined()) {
        rotate(rows, stride, target, layout.width(), rope, head_dim, /*inverse=*/true);
        continue;
      }
      rotate(rows, stride, rows, stride, rope, head_dim, /*inverse=*/true);
      Tensor by_heads;
      std::tie(by_heads, by_norms[i]) =
          normalize_grad(columns_of(qkv, part, head_dim).contiguous(), norm, saved[9 + i], rows);
      target.copy_(by_heads);
    }
    heads_of(by_qkv, turned, layout.kv_heads, head_dim).copy_(by_v);
    return {by_qkv, by_norms[0], by_norms[1], Tensor()};
  }
};

void check_norm(const Tensor& weight, Index heads, Index head_dim, const char* what) {
  if (!weight.defined()) return;
  HONE_CHECK(weight.numel() == head_dim || weight.numel() == heads * head_dim, what,
             concat(head_dim, " or ", heads * head_dim, " weights"), weight.numel());
}

}  // namespace

Tensor causal_attention(const Tensor& qkv, const RopeTable& rope, const HeadLayout& layout,
                        const AttentionTraits& traits) {
  HONE_CHECK(qkv.dim() == 3 && qkv.size(2) == layout.width(), "causal_attention",
             concat("[batch, positions, ", layout.width(), "]"), qkv.size(-1));
  HONE_CHECK(qkv.size(1) <= rope.cos.size(0), "causal_attention",
             concat("at most ", rope.cos.size(0), " positions"), qkv.size(1));
  check_norm(traits.q_norm, layout.heads, layout.head_dim, "causal_attention: q_norm");
  check_norm(traits.k_norm, layout.kv_heads, layout.head_dim, "causal_attention: k_norm");
  if (!takes_fused_kernels(qkv)) return composed::causal_attention(qkv, rope, layout, traits);
  return AttentionFunction::apply(
      qkv.contiguous(), optional_of(traits.q_norm), optional_of(traits.k_norm),
      Constants{rope, traits.mask, layout, traits.norm_eps, traits.scale});
}

Tensor window_mask(Index positions, Index window, const torch::TensorOptions& options) {
  constexpr float kUnseen = -std::numeric_limits<float>::infinity();
  const Tensor seen =
      at::ones({positions, positions}, options.dtype(at::kBool)).tril().triu(1 - window);
  return at::zeros({positions, positions}, options.dtype(at::kFloat))
      .masked_fill_(seen.logical_not(), kUnseen);
}

}  // namespace hone::nn
