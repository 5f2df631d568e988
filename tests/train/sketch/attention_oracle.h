// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <cmath>
#include <limits>

#include "hone/train/sketch/linear_attention.h"

namespace hone::nn::test {

using torch::Tensor;

inline Tensor randn(at::IntArrayRef sizes, double size = 1) {
  return torch::randn(sizes, torch::kDouble) * size;
}

// max |a - b| / max |b|.
inline double relative_error(const Tensor& a, const Tensor& b) {
  const Tensor want = b.detach().to(torch::kDouble), got = a.detach().to(torch::kDouble);
  return ((got - want).abs().max() / want.abs().max().clamp_min(1e-300)).item<double>();
}

// Attention by its definition: all pairs of tokens, the logarithm of each product of features, and
// a softmax over keys, which no norm of the inputs overflows. Rows without a key are 0.
inline Tensor all_pairs(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& omega,
                        const LinearAttentionOptions& options,
                        const LinearAttentionMasks& masks = {}) {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  const auto log_features = [&](const Tensor& tokens) {
    Tensor x = tokens.transpose(1, 2);
    const double m = static_cast<double>(omega.size(0)), dim = static_cast<double>(omega.size(1));
    if (options.kind == FeatureKind::Relu) {
      return ((at::matmul(x, omega.t()) / std::sqrt(m)).relu() + options.eps).log();
    }
    x = x / std::pow(dim, 0.25);
    return at::matmul(x, omega.t()) - x.square().sum(-1, true) / 2 - std::log(m) / 2;
  };
  Tensor scores = (log_features(q).unsqueeze(3) + log_features(k).unsqueeze(2)).logsumexp(-1);
  Tensor hidden = at::zeros_like(scores, torch::kBool);
  if (options.causal) hidden = hidden.logical_or(at::ones_like(hidden).triu(1));
  if (masks.keys.defined()) {
    hidden = hidden.logical_or(masks.keys.logical_not().unsqueeze(1).unsqueeze(2));
  }
  if (masks.queries.defined()) {
    hidden = hidden.logical_or(masks.queries.logical_not().unsqueeze(1).unsqueeze(3));
  }
  const Tensor is_nothing = hidden.all(-1, true);
  scores = scores.masked_fill(hidden, kNothing).masked_fill(is_nothing, 0);
  const Tensor weights = scores.softmax(-1).masked_fill(is_nothing, 0);
  return at::matmul(weights, v.transpose(1, 2)).transpose(1, 2);
}

}  // namespace hone::nn::test
