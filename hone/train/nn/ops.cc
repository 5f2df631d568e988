// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/ops.h"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <algorithm>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/activation/glu.h"
#include "hone/kernels/norm/cross_entropy.h"
#include "hone/kernels/norm/rms_norm.h"
#include "hone/kernels/norm/rms_norm_grad.h"
#include "hone/train/first_derivative.h"
#include "hone/train/interop.h"
#include "hone/train/nn/arguments.h"
#include "hone/train/nn/matmul.h"
#include "hone/train/nn/recompute.h"

namespace hone::nn {
namespace {

using detail::data_of;
using detail::optional_of;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Logits that exist at a time: few enough to matter little beside the activations of a real model,
// and rows enough for fast products.
constexpr Index kLogitsOfChunk = Index{1} << 24, kRowsOfTile = 64;

// Saves how the forward pass multiplied, for the backward pass.
void keep_products(AutogradContext* context, const detail::Products& products) {
  context->saved_data["backend"] = static_cast<std::int64_t>(products.backend);
  context->saved_data["type"] = static_cast<std::int64_t>(products.type);
}
detail::Products kept_products(AutogradContext* context) {
  return {.backend = static_cast<MatmulBackend>(context->saved_data["backend"].toInt()),
          .type = static_cast<at::ScalarType>(context->saved_data["type"].toInt())};
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, std::int64_t backend,
                        std::int64_t activation, bool wants_grad) {
    const auto products = detail::products_here(static_cast<MatmulBackend>(backend));
    const auto kind = static_cast<Activation>(activation);
    const bool keeps_input = wants_grad && detail::keeps_input(kind);
    const Tensor left = operand(x, products), right = operand(weight, products);
    keep_products(context, products);
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["activation"] = activation;
    const Tensor z = detail::multiply(
        left, right,
        {.bias = bias.value_or(Tensor()), .activation = keeps_input ? Activation::None : kind},
        products);
    const Tensor y = keeps_input ? detail::activate(kind, z, wants_grad) : z;
    const bool needs_values = kind != Activation::None;
    context->save_for_backward({left, right, needs_values ? (keeps_input ? z : y) : Tensor()});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const detail::Products products = kept_products(context);
    if (products.backend == MatmulBackend::OneDnn) refuse_second_derivative("linear");
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    const Tensor given =
        detail::activate_backward(activation, grads[0].contiguous(), saved[2]).contiguous();
    const Tensor grad = operand(given, products);
    Tensor by_x, by_weight, by_bias;
    if (context->needs_input_grad(0)) by_x = detail::multiply_for_input(grad, saved[1], products);
    if (context->needs_input_grad(1)) {
      by_weight = detail::multiply_for_weight(grad, saved[0], products);
    }
    if (context->saved_data["has_bias"].toBool()) by_bias = given.sum(0);
    return {by_x, by_weight, by_bias, Tensor(), Tensor(), Tensor()};
  }
};

struct AddRmsNormFunction : torch::autograd::Function<AddRmsNormFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& x,
                               const std::optional<Tensor>& delta, const Tensor& weight,
                               double eps) {
    const Index dim = x.size(-1), rows = x.numel() / dim;
    const Tensor sum = delta ? at::empty_like(x) : x;
    const Tensor normed = at::empty_like(x), inverse_rms = at::empty({rows}, x.options());
    kernels::rms_norm({.x = data_of(x),
                       .x_stride = dim,
                       .delta = delta ? data_of(*delta) : nullptr,
                       .sum = delta ? data_of(sum) : nullptr,
                       .weight = data_of(weight),
                       .y = data_of(normed),
                       .y_stride = dim,
                       .inverse_rms = data_of(inverse_rms),
                       .rows = rows,
                       .cols = dim,
                       .epsilon = static_cast<float>(eps)},
                      libtorch_executor());
    context->set_materialize_grads(false);
    context->saved_data["has_delta"] = delta.has_value();
    context->save_for_backward({sum, weight, inverse_rms});
    if (delta) return {sum, normed};
    return {normed};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative("add_rms_norm");
    const auto saved = context->get_saved_variables();
    const bool has_delta = context->saved_data["has_delta"].toBool();
    const Tensor& carried = grads[0];  // with respect to sum; meaningful only with delta
    const Tensor& by_normed = grads.back();
    if (!by_normed.defined()) return {carried, carried, Tensor(), Tensor()};
    const Tensor grad = by_normed.contiguous();
    const bool has_carried = has_delta && carried.defined();
    const Tensor grad_sum = has_carried ? carried.contiguous() : Tensor();
    const Tensor by_x = at::empty_like(saved[0]), by_weight = at::empty_like(saved[1]);
    kernels::rms_norm_grad({.rows = saved[2].numel(),
                            .cols = saved[1].numel(),
                            .x = data_of(saved[0]),
                            .weight = data_of(saved[1]),
                            .inverse_rms = data_of(saved[2]),
                            .grad_y = data_of(grad),
                            .grad_sum = has_carried ? data_of(grad_sum) : nullptr,
                            .grad_x = data_of(by_x),
                            .grad_weight = data_of(by_weight)},
                           libtorch_executor());
    return {by_x, has_delta ? by_x : Tensor(), by_weight, Tensor()};
  }
};

struct GluFunction : torch::autograd::Function<GluFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& gate_up, std::int64_t gate) {
    const Index dim = gate_up.size(-1) / 2, rows = gate_up.numel() / (2 * dim);
    auto sizes = gate_up.sizes().vec();
    sizes.back() = dim;
    const Tensor out = at::empty(sizes, gate_up.options());
    kernels::glu({.rows = rows,
                  .cols = dim,
                  .gate_up = data_of(gate_up),
                  .out = data_of(out),
                  .gate = static_cast<Gate>(gate)},
                 libtorch_executor());
    context->save_for_backward({gate_up});
    context->saved_data["gate"] = gate;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative("glu");
    const Tensor gate_up = context->get_saved_variables()[0];
    const Tensor grad = grads[0].contiguous(), by_input = at::empty_like(gate_up);
    const Index dim = gate_up.size(-1) / 2;
    kernels::glu_grad({.rows = gate_up.numel() / (2 * dim),
                       .cols = dim,
                       .gate_up = data_of(gate_up),
                       .grad_out = data_of(grad),
                       .grad_gate_up = data_of(by_input),
                       .gate = static_cast<Gate>(context->saved_data["gate"].toInt())},
                      libtorch_executor());
    return {by_input, Tensor()};
  }
};

// Softmax with cross-entropy of logits, which it overwrites with their gradient.
struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& logits, const Tensor& targets,
                        bool want_grad) {
    const Tensor nats = nats_of(logits, targets, want_grad);
    if (want_grad) context->save_for_backward({logits});
    return nats.sum();
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative("linear_cross_entropy");
    return {context->get_saved_variables()[0] * grads[0].item<double>(), Tensor(), Tensor()};
  }

  // nats [rows] in f64.
  static Tensor nats_of(const Tensor& logits, const Tensor& targets, bool want_grad) {
    const Tensor nats = at::empty({logits.size(0)}, logits.options().dtype(torch::kDouble));
    kernels::cross_entropy({.rows = logits.size(0),
                            .classes = logits.size(1),
                            .logits = data_of(logits),
                            .targets = targets.data_ptr<std::int64_t>(),
                            .nats = nats.data_ptr<double>(),
                            .want_grad = want_grad},
                           libtorch_executor());
    return nats;
  }
};

// Logits of some rows at a time. Their gradients are known in the forward pass up to a factor, so
// that they are multiplied on at once and the backward pass has nothing to compute again.
struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& weight,
                        const Tensor& targets, std::int64_t backend, bool for_hidden,
                        bool for_weight) {
    const detail::Products products{.backend = static_cast<MatmulBackend>(backend)};
    const Index rows = hidden.size(0), most = logits_rows(weight.size(0));
    Tensor by_hidden = for_hidden ? at::empty_like(hidden) : Tensor(), by_weight;
    Tensor nats = at::zeros({}, hidden.options().dtype(torch::kDouble));
    for (Index begin = 0; begin < rows; begin += most) {
      const Index count = std::min(most, rows - begin);
      const Tensor part = hidden.narrow(0, begin, count);
      const Tensor logits = detail::multiply(part, weight, {}, products);
      nats += CrossEntropyFunction::nats_of(logits, targets.narrow(0, begin, count),
                                            for_hidden || for_weight)
                  .sum();
      if (for_hidden) {
        const Tensor by_part = detail::multiply_for_input(logits, weight, products);
        if (count == rows) by_hidden = by_part;
        if (count < rows) by_hidden.narrow(0, begin, count).copy_(by_part);
      }
      if (!for_weight) continue;
      const Tensor by_part = detail::multiply_for_weight(logits, part, products);
      by_weight = by_weight.defined() ? by_weight.add_(by_part) : by_part;
    }
    context->save_for_backward({by_hidden, by_weight});
    return nats;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative("linear_cross_entropy");
    const auto saved = context->get_saved_variables();
    const auto factor = grads[0].item<double>();
    const auto scaled = [&](const Tensor& by) { return by.defined() ? by * factor : Tensor(); };
    return {scaled(saved[0]), scaled(saved[1]), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// The same for products that round (scaled gradients, so in the backward pass) and for other
// devices: each chunk's logits are computed again there.
Tensor recomputed_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                                MatmulBackend backend) {
  const bool fused = takes_fused_kernels(hidden);
  const auto loss_of = [=](const Tensor& rows, const Tensor& matrix, const Tensor& wanted) {
    if (!fused) return composed::linear_cross_entropy(rows, matrix, wanted);
    const Tensor logits = linear(rows, matrix, {}, backend);
    return CrossEntropyFunction::apply(logits, wanted, logits.requires_grad());
  };
  const Index rows = hidden.size(0), most = logits_rows(weight.size(0));
  if (rows <= most) return loss_of(hidden, weight, targets);
  Tensor nats;
  for (Index begin = 0; begin < rows; begin += most) {
    const Index count = std::min(most, rows - begin);
    const Tensor wanted = targets.narrow(0, begin, count);
    const Tensor part =
        recompute([=](const Tensors& in) -> Tensors { return {loss_of(in[0], in[1], wanted)}; },
                  {hidden.narrow(0, begin, count), weight})[0];
    nats = nats.defined() ? nats + part : part;
  }
  return nats;
}

Index columns(const Tensor& x) { return x.dim() == 0 ? 0 : x.size(-1); }

// Kernels read the operands of an f32 tensor on the CPU without looking at their sizes or types.
void check_operand(const char* op, const char* what, const Tensor& operand, at::IntArrayRef sizes) {
  HONE_CHECK(operand.sizes().equals(sizes), op, concat(what, " of shape ", c10::str(sizes)),
             c10::str(operand.sizes()));
  HONE_CHECK(takes_fused_kernels(operand), op, concat(what, " in f32 on the CPU"),
             concat(at::toString(operand.scalar_type()), " on ", operand.device().str()));
}

}  // namespace

Index logits_rows(Index classes) {
  const Index rows = kLogitsOfChunk / classes;
  return rows < kRowsOfTile ? std::max<Index>(1, rows) : rows / kRowsOfTile * kRowsOfTile;
}

bool takes_fused_kernels(const Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == torch::kFloat;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, MatmulBackend backend,
              Activation activation) {
  if (!takes_fused_kernels(x)) return detail::activated(activation, at::linear(x, weight, bias));
  check_operand("linear", "weight", weight, {weight.dim() == 2 ? weight.size(0) : 0, columns(x)});
  if (bias.defined()) check_operand("linear", "bias", bias, {weight.size(0)});
  const Tensor rows = x.dim() == 2 ? x : x.reshape({-1, columns(x)});
  const bool wants_grad =
      at::GradMode::is_enabled() &&
      (x.requires_grad() || weight.requires_grad() || (bias.defined() && bias.requires_grad()));
  const Tensor out = LinearFunction::apply(rows.contiguous(), weight, optional_of(bias),
                                           static_cast<std::int64_t>(resolve(backend)),
                                           static_cast<std::int64_t>(activation), wants_grad);
  if (x.dim() == 2) return out;
  auto sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return out.reshape(sizes);
}

std::pair<Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& weight,
                                       double eps) {
  if (!takes_fused_kernels(x)) return composed::add_rms_norm(x, delta, weight, eps);
  if (delta.defined()) check_operand("add_rms_norm", "delta", delta, x.sizes());
  check_operand("add_rms_norm", "weight", weight, {columns(x)});
  const Tensor base = x.contiguous();
  const auto out = AddRmsNormFunction::apply(
      base, optional_of(delta.defined() ? delta.contiguous() : delta), weight.contiguous(), eps);
  return {delta.defined() ? out[0] : base, out.back()};
}

Tensor glu(const Tensor& gate_up, Gate gate) {
  HONE_CHECK(columns(gate_up) % 2 == 0, "glu", "rows of an even length", columns(gate_up));
  if (!takes_fused_kernels(gate_up)) return composed::glu(gate_up, gate);
  return GluFunction::apply(gate_up.contiguous(), static_cast<std::int64_t>(gate));
}

Tensor linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                            MatmulBackend backend) {
  HONE_CHECK(hidden.dim() == 2 && targets.sizes().equals({hidden.size(0)}) &&
                 targets.scalar_type() == at::kLong,
             "linear_cross_entropy", "rows of hidden values and an int64 target for each",
             concat(c10::str(hidden.sizes()), " and ", at::toString(targets.scalar_type()), " ",
                    c10::str(targets.sizes())));
  const Tensor rows = hidden.contiguous(), wanted = targets.contiguous();
  const bool exact = takes_fused_kernels(rows) && detail::products_here(backend).type == at::kFloat;
  if (!exact) return recomputed_cross_entropy(rows, weight, wanted, backend);
  check_operand("linear_cross_entropy", "weight", weight,
                {weight.dim() == 2 ? weight.size(0) : 0, columns(rows)});
  const auto wants = [](const Tensor& tensor) {
    return at::GradMode::is_enabled() && tensor.requires_grad();
  };
  return LinearCrossEntropyFunction::apply(rows, weight, wanted,
                                           static_cast<std::int64_t>(resolve(backend)), wants(rows),
                                           wants(weight));
}

}  // namespace hone::nn
