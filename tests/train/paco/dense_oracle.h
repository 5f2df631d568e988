// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "hone/train/paco/geometry.h"

// The definitions by dense dim x dim matrices in fp64 and loops over images, parts and rows, with
// autograd through LibTorch's factorizations.
namespace hone::paco::test {

using torch::Tensor;

inline Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

inline Tensor labels(const std::vector<Index>& values) { return at::tensor(values, at::kLong); }

// The largest difference, relative to the largest value.
inline double worst(const Tensor& got, const Tensor& want) {
  const double scale = std::max(want.abs().max().item<double>(), 1e-300);
  return (got - want).abs().max().item<double>() / scale;
}

inline Tensor numbers(std::vector<double> values, at::IntArrayRef sizes) {
  return at::tensor(values, at::kDouble).reshape(sizes);
}

// The covariance of parts [parts, dim], without anything on the diagonal.
inline Tensor covariance(const Tensor& z) {
  const Tensor centered = z - z.mean(0, true);
  const double count = z.size(0) > 1 ? static_cast<double>(z.size(0) - 1) : 1;
  return at::matmul(centered.t(), centered) / count;
}

inline Tensor diagonal_of(const Tensor& value, Index dim) {
  return value * at::eye(dim, at::kDouble);
}

// The metric Σ of each image, by MetricOptions' definition.
struct DenseMetric {
  std::vector<Tensor> sigma;
};

inline DenseMetric dense_metric(const Tensor& z1, const Tensor& z2, const MetricOptions& options) {
  const Index batch = z1.size(0), dim = z1.size(2);
  std::vector<Tensor> mean;
  for (Index b = 0; b < batch; ++b) mean.push_back((covariance(z1[b]) + covariance(z2[b])) / 2);
  DenseMetric metric;
  if (options.pooled > 0) {
    Tensor pooled = at::stack(mean).mean(0).detach();
    const Tensor ridge = (1e-3 * pooled.diagonal().mean()).clamp_min(options.floor);
    pooled = pooled + diagonal_of(ridge, dim);
    for (const Tensor& own : mean) {
      metric.sigma.push_back(options.pooled * pooled + (1 - options.pooled) * own);
    }
    return metric;
  }
  for (const Tensor& own : mean) {
    const Tensor share = options.rho * own.diagonal().sum() / static_cast<double>(dim);
    const Tensor floor = at::scalar_tensor(options.floor, at::kDouble);
    switch (options.delta) {
      case DeltaMode::Absolute:
        metric.sigma.push_back(own + diagonal_of(floor, dim));
        break;
      case DeltaMode::Relative:
        metric.sigma.push_back(own + diagonal_of(at::maximum(share, floor), dim));
        break;
      case DeltaMode::Shrink:
        metric.sigma.push_back((1 - options.rho) * own + diagonal_of(share + floor, dim));
        break;
    }
  }
  return metric;
}

inline Tensor distance_sq(const Tensor& sigma, const Tensor& x) {
  const Tensor solved = at::cholesky_solve(x.unsqueeze(1), at::linalg_cholesky(sigma));
  return (x.unsqueeze(1) * solved).sum();
}

struct TripletRules {
  double alpha = 0.2, scale = 1;
  bool semi_hard = true, mask_owner = true, mask_class = true, softplus = false;
  Index top_m = 0;
};

// The part-contrast loss, anchor by anchor and row by row.
inline Tensor triplet_loss(const DenseMetric& metric, const Tensor& z1, const Tensor& z2,
                           const Tensor& targets, const Tensor& matching,
                           const TripletRules& rules) {
  const Index batch = z1.size(0), parts = z1.size(1);
  const Tensor pool = at::cat({z1.flatten(0, 1), z2.flatten(0, 1)});
  Tensor sum = at::zeros({}, at::kDouble);
  for (Index b = 0; b < batch; ++b) {
    const Tensor inverse = at::linalg_inv(metric.sigma[static_cast<std::size_t>(b)]);
    for (Index k = 0; k < parts; ++k) {
      const Tensor p = z1[b][k];
      const auto to = [&](const Tensor& other) {
        const Tensor x = p - other;
        return (x * at::matmul(inverse, x)).sum().sqrt() * rules.scale;
      };
      const Tensor positive = to(z2[b][matching[b][k].item<Index>()]);
      std::vector<Index> allowed;
      for (Index n = 0; n < pool.size(0); ++n) {
        const Index owner = n / parts % batch;
        if (rules.mask_owner && owner == b) continue;
        if (rules.mask_class && targets[owner].item<Index>() == targets[b].item<Index>()) continue;
        allowed.push_back(n);
      }
      const auto cosine = [&](Index n) {
        const Tensor u = pool[n];
        return (p * u).sum().item<double>() / (std::max(p.norm().item<double>(), 1e-12) *
                                               std::max(u.norm().item<double>(), 1e-12));
      };
      if (rules.top_m > 0 && static_cast<Index>(allowed.size()) > rules.top_m) {
        std::stable_sort(allowed.begin(), allowed.end(),
                         [&](Index a, Index c) { return cosine(a) > cosine(c); });
        allowed.resize(static_cast<std::size_t>(rules.top_m));
        std::sort(allowed.begin(), allowed.end());
      }
      if (allowed.empty()) continue;
      Tensor nearest, beyond;
      for (const Index n : allowed) {
        const Tensor d = to(pool[n]);
        const double value = d.item<double>();
        if (!nearest.defined() || value < nearest.item<double>()) nearest = d;
        if (value <= positive.item<double>()) continue;
        if (!beyond.defined() || value < beyond.item<double>()) beyond = d;
      }
      const Tensor negative = rules.semi_hard && beyond.defined() ? beyond : nearest;
      const Tensor excess = positive - negative + rules.alpha;
      sum = sum + (rules.softplus ? at::softplus(excess) : excess.relu());
    }
  }
  return sum / static_cast<double>(batch * parts);
}

}  // namespace hone::paco::test
