// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/factored_function.h"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <optional>

#include "hone/core/check.h"
#include "hone/train/first_derivative.h"
#include "hone/train/sketch/dropout.h"
#include "hone/train/sketch/factor_products.h"

namespace hone::nn::detail {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The order of the tensors that the forward pass saves.
enum Saved { kX, kA, kB, kFirst, kSecond, kBias, kHidden, kEpilogue };

void keep_call(AutogradContext* context, const FactoredCall& call, const FactorProducts& products) {
  auto& data = context->saved_data;
  data["trained"] = call.rows.trained;
  data["second_at"] = call.rows.second_at;
  data["activation"] = static_cast<std::int64_t>(call.epilogue.activation);
  data["recompute"] = call.recompute;
  data["backend"] = static_cast<std::int64_t>(products.cpu.backend);
  data["type"] = static_cast<std::int64_t>(products.type);
  data["uses_matmul"] = products.uses_matmul;
  data["uses_kernel"] = products.uses_kernel;
}

FactorProducts kept_factor_products(AutogradContext* context) {
  auto& data = context->saved_data;
  const auto type = static_cast<at::ScalarType>(data["type"].toInt());
  const auto backend = static_cast<MatmulBackend>(data["backend"].toInt());
  return {.cpu = {.backend = backend, .type = type},
          .type = type,
          .uses_matmul = data["uses_matmul"].toBool(),
          .uses_kernel = data["uses_kernel"].toBool()};
}

// Columns of x aᵀ, without the others in memory.
Tensor own_columns(const Tensor& hidden, Index first, Index count) {
  return hidden.size(1) == count ? hidden : hidden.narrow(1, first, count).clone();
}

struct ForwardPass {
  FactorProducts products;
  Tensor rows, a, b;    // operands
  Tensor hidden, z, y;  // x aᵀ, before the activation, the result
  std::optional<std::uint64_t> dropout_key;
};

ForwardPass run_forward(const Tensor& x, const Tensor& bias, const FactoredCall& call,
                        bool wants_grad) {
  const auto& [activation, rate] = call.epilogue;
  ForwardPass pass;
  const FactorProducts& products = pass.products =
      factor_products("FactoredLinear", x, call.rows.a, call.matmul);
  pass.rows = products.operand(x);
  pass.a = products.operand(call.rows.a);
  pass.b = products.operand(call.rows.b);
  pass.hidden = products.operand(products.by_rows(pass.rows, pass.a));
  pass.z = products.by_columns(pass.hidden, pass.b, bias);
  pass.y = activate(activation, pass.z, wants_grad);
  if (call.is_training && rate > 0) {
    pass.dropout_key = draw_dropout_key();
    drop(pass.y, rate, *pass.dropout_key, pass.y);
  }
  return pass;
}

struct FactoredFunction : torch::autograd::Function<FactoredFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& first,
                        const Tensor& second, const std::optional<Tensor>& optional_bias,
                        const FactoredCall& call) {
    const Activation activation = call.epilogue.activation;
    const Tensor bias = optional_bias.value_or(Tensor());
    const ForwardPass pass = run_forward(x, bias, call, /*wants_grad=*/true);
    if (pass.dropout_key) {
      context->saved_data["rate"] = call.epilogue.dropout;
      context->saved_data["key"] = static_cast<std::int64_t>(*pass.dropout_key);
    }
    keep_call(context, call, pass.products);
    const Tensor kept_hidden =
        call.recompute ? Tensor()
                       : own_columns(pass.hidden, call.rows.second_at, call.rows.trained);
    const bool keeps_z = keeps_input(activation) && !call.recompute;
    const Tensor kept_epilogue = keeps_z                          ? pass.z
                                 : activation == Activation::Relu ? pass.y
                                                                  : Tensor();
    context->save_for_backward(
        {pass.rows, pass.a, pass.b, first, second, bias, kept_hidden, kept_epilogue});
    return pass.y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative("FactoredLinear");
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const FactorProducts products = kept_factor_products(context);
    const Index trained = data["trained"].toInt(), second_at = data["second_at"].toInt();
    const auto activation = static_cast<Activation>(data["activation"].toInt());
    Tensor hidden = saved[kHidden], input = saved[kEpilogue];
    if (data["recompute"].toBool()) {
      const Tensor all = products.operand(products.by_rows(saved[kX], saved[kA]));
      hidden = own_columns(all, second_at, trained);
      if (keeps_input(activation)) input = products.by_columns(all, saved[kB], saved[kBias]);
    }
    const Tensor by_z = gradient_of_product(context, grads[0], activation, input);
    const Tensor grad = products.operand(by_z);

    Tensor by_x, by_first, by_second, by_bias;
    const bool wants_x = context->needs_input_grad(0), wants_first = context->needs_input_grad(1);
    if (wants_x || wants_first) {
      const Tensor rows = wants_x ? saved[kB] : saved[kB].narrow(0, 0, trained);
      const Tensor by_hidden = products.operand(products.by_rows(grad, rows));
      if (wants_x) by_x = products.by_columns(by_hidden, saved[kA]);
      if (wants_first) {
        by_first = products.transposed(by_hidden.narrow(1, 0, trained), saved[kX]);
      }
    }
    if (context->needs_input_grad(2)) by_second = products.transposed(hidden, grad);
    if (saved[kBias].defined()) by_bias = by_z.sum(0);
    return {by_x, by_first, by_second, by_bias, Tensor()};
  }

  // Back through dropout and activation, contiguous.
  static Tensor gradient_of_product(AutogradContext* context, const Tensor& by_y,
                                    Activation activation, const Tensor& saved) {
    Tensor grad = by_y.contiguous();
    auto& data = context->saved_data;
    if (const auto rate = data.find("rate"); rate != data.end()) {
      const Tensor dropped = at::empty_like(grad);
      const auto key = static_cast<std::uint64_t>(data["key"].toInt());
      drop(grad, rate->second.toDouble(), key, dropped);
      grad = dropped;
    }
    return activate_backward(activation, grad, saved);
  }
};

}  // namespace

Tensor factored_product(const Tensor& x, const Tensor& first, const Tensor& second,
                        const Tensor& bias, const FactoredCall& call) {
  const bool wants_grad = at::GradMode::is_enabled() &&
                          (x.requires_grad() || first.requires_grad() || second.requires_grad() ||
                           (bias.defined() && bias.requires_grad()));
  if (!wants_grad) return run_forward(x, bias, call, false).y;
  const auto optional_bias = bias.defined() ? std::optional(bias) : std::nullopt;
  return FactoredFunction::apply(x, first, second, optional_bias, call);
}

}  // namespace hone::nn::detail
