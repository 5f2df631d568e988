// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/autograd.h>

#include <functional>
#include <vector>

#include "hone/train/sketch/factored_linear.h"

namespace hone::nn::test {

using torch::Tensor;

inline Tensor seeded_normal(at::IntArrayRef sizes, std::uint64_t seed,
                            at::ScalarType type = at::kDouble) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator, at::TensorOptions().dtype(at::kDouble)).to(type);
}

inline double relative(const Tensor& got, const Tensor& want) {
  const Tensor exact = want.detach().to(at::kDouble);
  const double size = exact.norm().item<double>();
  const double error = (got.detach().to(at::kDouble) - exact).norm().item<double>();
  return size == 0 ? error : error / size;
}

// A layer whose trained weights are given, in f64.
inline FactoredLinear seeded_layer(const FactoredLinearOptions& options, std::uint64_t seed) {
  FactoredWeights weights;
  weights.first = seeded_normal({options.width(), options.in_features}, seed);
  weights.second = seeded_normal({options.width(), options.out_features}, seed + 1);
  if (options.bias) weights.bias = seeded_normal({options.out_features}, seed + 2);
  return FactoredLinear(options, weights);
}

// The published form of a sketched layer: batched products over the terms and their mean.
// Trained tensors as s1s [terms, in, low_rank] and s2s [terms, low_rank, out].
struct PerTerm {
  Tensor s1s, s2s, u1s, u2s, bias;

  static PerTerm of(FactoredLinearImpl& layer) {
    const auto& options = layer.options();
    const Index terms = options.terms, low_rank = options.recipe().low_rank;
    const auto [u1, u2] = layer.fixed_signs();
    const auto by_term = [&](const Tensor& rows) {
      return rows.detach().to(at::kDouble).clone().view({terms, low_rank, -1});
    };
    PerTerm out{by_term(layer.first()).transpose(1, 2).contiguous(),
                by_term(layer.second()),
                by_term(u1),
                by_term(u2).transpose(1, 2).contiguous(),
                {}};
    out.s1s.set_requires_grad(true);
    out.s2s.set_requires_grad(true);
    if (options.bias) {
      out.bias = layer.bias().detach().to(at::kDouble).clone().set_requires_grad(true);
    }
    return out;
  }

  Tensor forward(const Tensor& x) const {
    const Index terms = s1s.size(0);
    const Tensor inputs = x.unsqueeze(0).expand({terms, x.size(0), x.size(1)});
    const Tensor sum = at::bmm(at::bmm(inputs, s1s), u1s) + at::bmm(at::bmm(inputs, u2s), s2s);
    const Tensor mean = sum.sum(0) / (2.0 * static_cast<double>(terms));
    return bias.defined() ? mean + bias : mean;
  }
  // Gradients in the layout of the layer's parameters.
  Tensor by_first() const { return s1s.grad().transpose(1, 2).reshape({-1, s1s.size(1)}); }
  Tensor by_second() const { return s2s.grad().reshape({-1, s2s.size(2)}); }
};

// The largest difference of a gradient from central differences of `value`, relative to its size.
inline double gradient_error(const std::function<Tensor()>& value, Tensor variable) {
  variable.mutable_grad() = Tensor();
  value().backward();
  const Tensor grad = variable.grad().clone(), numeric = at::zeros_like(grad);
  const at::NoGradGuard no_grad;
  Tensor flat = variable.view({-1}), out = numeric.view({-1});
  constexpr double kStep = 1e-5;
  for (Index i = 0; i < flat.numel(); ++i) {
    const double before = flat[i].item<double>();
    flat[i] = before + kStep;
    const double above = value().item<double>();
    flat[i] = before - kStep;
    const double below = value().item<double>();
    flat[i] = before;
    out[i] = (above - below) / (2 * kStep);
  }
  return relative(grad, numeric);
}

}  // namespace hone::nn::test
