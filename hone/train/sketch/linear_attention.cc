// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/linear_attention.h"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <cmath>
#include <limits>

#include "hone/core/check.h"
#include "hone/core/philox.h"
#include "hone/kernels/sketch/sketch_op.h"
#include "hone/train/exact_scope.h"
#include "hone/train/first_derivative.h"
#include "hone/train/interop.h"

namespace hone::nn {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::string_view kAttend = "linear_attention";

std::string text_of(const Tensor& tensor) { return concat(c10::str(tensor.sizes())); }

void check_mask(const Tensor& mask, const Tensor& tokens, std::string_view name) {
  if (!mask.defined()) return;
  HONE_CHECK(mask.scalar_type() == torch::kBool && mask.sizes() == tokens.sizes().slice(0, 2) &&
                 mask.device() == tokens.device(),
             kAttend,
             concat("a bool mask of ", name, " [", tokens.size(0), ", ", tokens.size(1),
                    "] on their device"),
             concat(c10::toString(mask.scalar_type()), " ", text_of(mask)));
}

void check(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& omega,
           const LinearAttentionOptions& options, const LinearAttentionMasks& masks,
           const LinearAttentionState* state) {
  HONE_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && omega.dim() == 2, kAttend,
             "q, k, v of 4 dimensions and omega of 2",
             concat(q.dim(), ", ", k.dim(), ", ", v.dim(), " and ", omega.dim()));
  HONE_CHECK(k.size(0) == q.size(0) && k.size(2) == q.size(2) && k.size(3) == q.size(3) &&
                 v.sizes().slice(0, 3) == k.sizes().slice(0, 3) && omega.size(1) == q.size(3),
             kAttend, "q [b, t, h, d], k [b, s, h, d], v [b, s, h, e] and omega [m, d]",
             concat(text_of(q), ", ", text_of(k), ", ", text_of(v), " and ", text_of(omega)));
  HONE_CHECK(q.is_floating_point() && k.scalar_type() == q.scalar_type() &&
                 v.scalar_type() == q.scalar_type(),
             kAttend, "q, k, v of one floating-point type",
             concat(c10::toString(q.scalar_type()), ", ", c10::toString(k.scalar_type()), ", ",
                    c10::toString(v.scalar_type())));
  HONE_CHECK(std::isfinite(options.eps) && options.eps >= 0, kAttend, "a finite eps >= 0",
             options.eps);
  HONE_REQUIRE(options.eps == 0 || options.kind == FeatureKind::Relu || !options.causal, kAttend,
               "Causal softmax features have no eps, because it would be relative to later keys.");
  HONE_CHECK(!options.causal || q.size(1) == k.size(1), kAttend,
             concat(q.size(1), " keys for causal queries"), k.size(1));
  HONE_REQUIRE(state == nullptr || options.causal, kAttend, "Only causal attention has a state.");
  check_mask(masks.keys, k, "keys");
  check_mask(masks.queries, q, "queries");
}

// A state of no tokens, in the type of computation.
void begin(LinearAttentionState& state, const Tensor& q, const Tensor& v, const Tensor& omega) {
  const auto sizes = q.options().dtype(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const std::vector<Index> z{q.size(0), q.size(2), v.size(3) + 1, omega.size(0)};
  if (!state.defined()) {
    state.z = at::zeros(z, sizes);
    state.max_exponent =
        at::full({q.size(0), q.size(2)}, -std::numeric_limits<double>::infinity(), sizes);
    state.position = 0;
  }
  HONE_CHECK(state.z.sizes() == z && state.z.scalar_type() == sizes.dtype().toScalarType() &&
                 state.z.device() == q.device(),
             kAttend,
             concat("a state ", c10::str(c10::IntArrayRef(z)), " of ",
                    c10::toString(sizes.dtype().toScalarType()), " where q is"),
             concat(text_of(state.z), " of ", c10::toString(state.z.scalar_type())));
}

kernels::LinearAttentionArgs args_of(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const Tensor& omega, const LinearAttentionMasks& masks,
                                     const LinearAttentionOptions& options) {
  return {.batch = q.size(0),
          .heads = q.size(2),
          .queries = q.size(1),
          .keys = k.size(1),
          .qk_dim = q.size(3),
          .v_dim = v.size(3),
          .features = omega.size(0),
          .kind = options.kind,
          .eps = static_cast<float>(options.eps),
          .causal = options.causal,
          .q = q.data_ptr<float>(),
          .k = k.data_ptr<float>(),
          .v = v.data_ptr<float>(),
          .omega = omega.data_ptr<float>(),
          .key_mask = masks.keys.defined() ? masks.keys.data_ptr<bool>() : nullptr,
          .query_mask = masks.queries.defined() ? masks.queries.data_ptr<bool>() : nullptr};
}

Tensor new_out(const Tensor& q, const Tensor& v) {
  return at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
}

struct LinearAttentionFunction : torch::autograd::Function<LinearAttentionFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& omega, const LinearAttentionMasks& masks,
                        const LinearAttentionOptions& options) {
    const Tensor out = new_out(q, v);
    kernels::LinearAttentionArgs args = args_of(q, k, v, omega, masks, options);
    args.out = out.data_ptr<float>();
    const Tensor sums = at::empty({args.batch, args.heads, args.queries}, q.options());
    const Tensor checkpoints = at::empty({args.checkpoint_floats()}, q.options());
    args.inverse_sums = sums.data_ptr<float>();
    args.checkpoints = checkpoints.data_ptr<float>();
    kernels::linear_attention(args, libtorch_executor());
    context->save_for_backward({q, k, v, omega, masks.keys, masks.queries, out, sums, checkpoints});
    context->saved_data["kind"] = static_cast<std::int64_t>(options.kind);
    context->saved_data["causal"] = options.causal;
    context->saved_data["eps"] = options.eps;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative("linear_attention");
    const auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const LinearAttentionOptions options{
        static_cast<FeatureKind>(context->saved_data["kind"].toInt()),
        context->saved_data["causal"].toBool(), context->saved_data["eps"].toDouble()};
    kernels::LinearAttentionArgs args = args_of(q, k, v, saved[3], {saved[4], saved[5]}, options);
    args.out = saved[6].data_ptr<float>();
    args.inverse_sums = saved[7].data_ptr<float>();
    args.checkpoints = saved[8].data_ptr<float>();
    const Tensor by_out = grads[0].contiguous();
    const Tensor by_q = at::empty_like(q), by_k = at::empty_like(k), by_v = at::empty_like(v);
    kernels::linear_attention_grad({.forward = args,
                                    .grad_out = by_out.data_ptr<float>(),
                                    .grad_q = by_q.data_ptr<float>(),
                                    .grad_k = by_k.data_ptr<float>(),
                                    .grad_v = by_v.data_ptr<float>()},
                                   libtorch_executor());
    return {by_q, by_k, by_v, Tensor(), Tensor(), Tensor()};
  }
};

bool takes_kernels(const Tensor& q, const LinearAttentionOptions& options) {
  const auto type = q.scalar_type();
  return q.device().is_cpu() &&
         (type == at::kFloat || type == at::kHalf || type == at::kBFloat16) &&
         (options.kind == FeatureKind::Relu || options.eps == 0);
}

Tensor contiguous(const Tensor& tensor) { return tensor.defined() ? tensor.contiguous() : tensor; }
Tensor as_floats(const Tensor& tensor) { return tensor.to(at::kFloat).contiguous(); }

// -infinity would make differences of exponents NaN.
Tensor finite(const Tensor& exponents) {
  const double lowest = exponents.scalar_type() == at::kDouble
                            ? std::numeric_limits<double>::lowest()
                            : std::numeric_limits<float>::lowest();
  return exponents.clamp_min(lowest / 4);
}

// Features [batch, heads, tokens, features] of tokens [batch, tokens, heads, dim], without the
// factor 1/sqrt(features) of softmax, which cancels. Those of queries are relative to e^(their own
// largest exponent), those of keys to e^exponents [batch, heads, tokens], which are the largest so
// far, from `before` [batch, heads] on, or with eps, of all.
struct Features {
  Tensor phi, exponents;
};
Features features_of(const Tensor& tokens, const Tensor& mask, const Tensor& omega,
                     const LinearAttentionOptions& options, const Tensor& before) {
  const bool is_relu = options.kind == FeatureKind::Relu, is_key = before.defined();
  Tensor x = tokens.transpose(1, 2), valid;
  if (mask.defined()) {
    valid = mask.unsqueeze(1).unsqueeze(3);
    x = x.masked_fill(valid.logical_not(), 0);
  }
  x = x * (is_relu ? std::pow(static_cast<double>(omega.size(0)), -0.5)
                   : std::pow(static_cast<double>(omega.size(1)), -0.25));
  Tensor exponent = at::matmul(x, omega.t()), shift, phi;
  if (is_relu) {
    phi = at::relu(exponent) + options.eps;
    if (is_key) shift = before.unsqueeze(2).expand({-1, -1, x.size(2)});
  } else {
    if (is_key) exponent = exponent - x.square().sum(-1, true) / 2;
    shift = x.size(2) == 0 ? exponent.detach().sum(-1) : exponent.detach().amax(-1);
    if (is_key && x.size(2) > 0) {
      if (valid.defined()) {
        shift = shift.masked_fill(mask.unsqueeze(1).logical_not(),
                                  -std::numeric_limits<double>::infinity());
      }
      shift = at::maximum(std::get<0>(finite(shift).cummax(-1)), before.unsqueeze(2));
      if (options.eps > 0) shift = shift.slice(2, -1).expand_as(shift);
    }
    phi = (exponent - shift.unsqueeze(-1));
    if (valid.defined()) phi = phi.masked_fill(valid.logical_not(), 0);
    phi = phi.exp() + options.eps;
  }
  if (valid.defined()) phi = phi.masked_fill(valid.logical_not(), 0);
  return {phi, shift};
}

// The numerators and denominators of causal attention, [batch, heads, tokens, v_dim + 1], of y
// [batch, heads, tokens, v_dim + 1].
Tensor causal_sums(const Tensor& phi_q, const Features& keys, const Tensor& y,
                   LinearAttentionState& state, Index chunk) {
  const Index tokens = y.size(2);
  std::vector<Tensor> sums;
  for (Index first = 0; first < tokens; first += chunk) {
    const Index last = std::min(first + chunk, tokens);
    const Tensor q = phi_q.slice(2, first, last), k = keys.phi.slice(2, first, last);
    const Tensor y_here = y.slice(2, first, last), upto = keys.exponents.slice(2, first, last);
    const Tensor end = upto.select(2, -1), before = state.max_exponent;
    const Tensor future =
        at::ones({last - first, last - first}, y.options().dtype(at::kBool)).triu(1);
    const Tensor decays = (upto.unsqueeze(2) - upto.unsqueeze(3))
                              .masked_fill(future, -std::numeric_limits<double>::infinity())
                              .exp();
    const Tensor pairs = at::matmul(q, k.transpose(2, 3)).masked_fill(future, 0) * decays;
    sums.push_back((before.unsqueeze(2) - upto).exp().unsqueeze(3) *
                       at::matmul(q, state.z.transpose(2, 3)) +
                   at::matmul(pairs, y_here));
    const Tensor kept = y_here * (upto - end.unsqueeze(2)).exp().unsqueeze(3);
    state.z = state.z * (before - end).exp().unsqueeze(2).unsqueeze(3) +
              at::matmul(kept.transpose(2, 3), k);
    state.max_exponent = end;
  }
  return sums.empty() ? y : at::cat(sums, 2);
}

}  // namespace

LinearAttentionState LinearAttentionState::clone() const {
  if (!defined()) return {};
  return {z.clone(), max_exponent.clone(), position, draws};
}

Tensor composed::linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Tensor& omega, const LinearAttentionOptions& options,
                                  const LinearAttentionMasks& masks, LinearAttentionState* state,
                                  Index chunk) {
  check(q, k, v, omega, options, masks, state);
  HONE_CHECK(chunk > 0, kAttend, "chunks of at least 1 token", chunk);
  const ExactScope exact;
  LinearAttentionState local;
  LinearAttentionState& memory = state == nullptr ? local : *state;
  begin(memory, q, v, omega);
  memory.max_exponent = finite(memory.max_exponent);
  const Tensor projection = omega.detach().to(memory.z.options());
  const auto phi_q = features_of(in_working_type(q), masks.queries, projection, options, {}).phi;
  const Features keys =
      features_of(in_working_type(k), masks.keys, projection, options, memory.max_exponent);
  Tensor values = in_working_type(v).transpose(1, 2);
  if (masks.keys.defined()) {
    values = values.masked_fill(masks.keys.unsqueeze(1).unsqueeze(3).logical_not(), 0);
  }
  const Tensor y = at::cat({values, at::ones_like(values.slice(3, 0, 1))}, 3);
  Tensor sums;
  if (options.causal) {
    sums = causal_sums(phi_q, keys, y, memory, chunk);
  } else {
    Tensor phi = keys.phi;
    if (k.size(1) > 0) {
      phi = phi * (keys.exponents - keys.exponents.slice(2, -1)).exp().unsqueeze(3);
    }
    sums = at::matmul(phi_q, at::matmul(phi.transpose(2, 3), y));
  }
  memory.position += q.size(1);
  const Tensor divisor = sums.slice(3, v.size(3));
  const Tensor is_nothing = divisor < kernels::kLeastFeatureSum;
  const Tensor out = sums.slice(3, 0, v.size(3)) / divisor.masked_fill(is_nothing, 1);
  return out.masked_fill(is_nothing, 0).transpose(1, 2).to(q.scalar_type());
}

Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& omega,
                        const LinearAttentionOptions& options, const LinearAttentionMasks& masks,
                        LinearAttentionState* state) {
  check(q, k, v, omega, options, masks, state);
  std::optional<at::NoGradGuard> no_grad;
  if (state != nullptr) no_grad.emplace();
  if (!takes_kernels(q, options)) {
    return composed::linear_attention(q, k, v, omega, options, masks, state);
  }
  const Tensor q32 = as_floats(q), k32 = as_floats(k), v32 = as_floats(v);
  const Tensor projection = as_floats(omega.detach());
  const LinearAttentionMasks dense{contiguous(masks.keys), contiguous(masks.queries)};
  if (at::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad())) {
    return LinearAttentionFunction::apply(q32, k32, v32, projection, dense, options)
        .to(q.scalar_type());
  }
  const Tensor out = new_out(q32, v32);
  kernels::LinearAttentionArgs args = args_of(q32, k32, v32, projection, dense, options);
  args.out = out.data_ptr<float>();
  if (state != nullptr) {
    begin(*state, q, v, omega);
    state->z = state->z.contiguous();
    state->max_exponent = state->max_exponent.contiguous();
    args.state = state->z.data_ptr<float>();
    args.max_exponent = state->max_exponent.data_ptr<float>();
    state->position += q.size(1);
  }
  kernels::linear_attention(args, libtorch_executor());
  return out.to(q.scalar_type());
}

std::uint64_t derived_seed(std::uint64_t seed, std::uint32_t layer, std::uint32_t use) {
  const PhiloxBlock block = philox(seed, {layer, use, 0, 0xfa707});
  return std::uint64_t{block[0]} << 32 | block[1];
}

Tensor orthogonal_features(Index features, Index dim, FeatureNorm norm, std::uint64_t seed,
                           std::uint32_t draw) {
  HONE_CHECK(features > 0 && dim > 0, "orthogonal_features", "features and dim of at least 1",
             concat(features, " and ", dim));
  const at::NoGradGuard no_grad;
  const Index blocks = ceil_div(features, dim), rows = blocks * dim;
  const auto gaussian = [&](std::uint32_t use) {
    const kernels::SketchOp op{
        .rows = rows, .cols = dim, .seed = derived_seed(seed, draw, use), .scaled = false};
    const Tensor drawn = at::empty({rows, dim}, at::kDouble);
    kernels::materialize(op, 0, 0, view_of(drawn, "omega"), libtorch_executor());
    return drawn;
  };
  // With positive diagonals of R, Q is uniformly distributed (Mezzadri, "How to generate random
  // matrices from the classical compact groups", 2007).
  const auto [q, r] = at::linalg_qr(gaussian(0).view({blocks, dim, dim}));
  const Tensor signs = at::where(r.diagonal(0, 1, 2) < 0, -1.0, 1.0).to(at::kDouble);
  const Tensor directions = (q * signs.unsqueeze(1)).transpose(1, 2).reshape({rows, dim});
  const Tensor norms = norm == FeatureNorm::Chi
                           ? at::linalg_vector_norm(gaussian(1), 2, at::IntArrayRef{1}, true)
                           : at::full({rows, 1}, std::sqrt(static_cast<double>(dim)), at::kDouble);
  return (directions * norms).slice(0, 0, features).contiguous();
}

}  // namespace hone::nn
