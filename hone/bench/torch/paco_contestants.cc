// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/paco_contestants.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "hone/core/check.h"
#include "hone/train/paco/loss.h"
#include "hone/train/paco/mining.h"

namespace hone::bench {
namespace {

using torch::Tensor;

paco::PacoLossOptions options_of(const PartContrastWork& work) {
  return {.classes = work.targets.size(0), .dim = work.z1.size(2)};
}

Tensor in_order(const Tensor& z) {
  return at::arange(z.size(1), at::kLong).expand({z.size(0), z.size(1)});
}

auto contrast_of(const PartContrastWork& work) {
  const paco::PacoLossOptions options = options_of(work);
  const auto metric = paco::part_metric(work.z1, work.z2, options.metric);
  return paco::part_contrast(metric, in_order(work.z1), work.targets, options);
}

Tensor by_hone(const PartContrastWork& work) { return contrast_of(work).loss; }

Tensor hinge_of(const Tensor& positive_q, const Tensor& negative_q, const PartContrastWork& work) {
  const double scale = 1 / std::sqrt(static_cast<double>(work.z1.size(2)));
  const double alpha = options_of(work).alpha;
  return ((paco::root_of(positive_q) - paco::root_of(negative_q)) * scale + alpha).relu().mean();
}

Tensor by_operators(const PartContrastWork& work) {
  const paco::PacoLossOptions options = options_of(work);
  const auto metric = paco::composed::part_metric(work.z1, work.z2, options.metric);
  const Tensor toward = work.z1 - work.z2;
  Tensor rows;
  {
    const at::NoGradGuard no_grad;
    const Tensor q = paco::composed::ridge_distance_sq(metric, toward);
    rows = paco::composed::mine_negatives(metric, q, work.targets, {}, {}).row;
  }
  const Tensor pool = at::cat({work.z1.flatten(0, 1), work.z2.flatten(0, 1)});
  const Tensor away = work.z1 - pool.index_select(0, rows.flatten()).reshape_as(work.z1);
  const auto q = paco::composed::ridge_distance_sq(metric, at::cat({toward, away}, 1)).chunk(2, 1);
  return hinge_of(q[0], q[1], work);
}

// Σ of each image, dense.
Tensor dense_metric(const PartContrastWork& work) {
  const Index batch = work.z1.size(0), parts = work.z1.size(1), dim = work.z1.size(2);
  const auto covariance = [&](const Tensor& z) {
    const Tensor centered = z - z.mean(1, true);
    return at::matmul(centered.transpose(1, 2), centered) / static_cast<double>(parts - 1);
  };
  const Tensor mean = (covariance(work.z1) + covariance(work.z2)) / 2;
  const paco::MetricOptions options;
  const Tensor trace = mean.diagonal(0, 1, 2).sum(1) * (options.rho / static_cast<double>(dim));
  const Tensor delta = trace.clamp_min(options.floor).reshape({batch, 1, 1});
  return mean + delta * at::eye(dim, mean.options());
}

// Squared distances with what may not be chosen at infinity: [batch, parts, pool].
Tensor allowed_distances(const Tensor& q, const Tensor& targets, Index parts) {
  const Index batch = targets.size(0);
  const Tensor owner = at::arange(batch, at::kLong).repeat_interleave(parts).repeat({2});
  const Tensor label = targets.index_select(0, owner);
  const Tensor refused = (owner.unsqueeze(0) == at::arange(batch, at::kLong).unsqueeze(1)) |
                         (label.unsqueeze(0) == targets.unsqueeze(1));
  return q.masked_fill(refused.unsqueeze(1), std::numeric_limits<double>::infinity());
}

Tensor semi_hard(const Tensor& q, const Tensor& positive) {
  const double none = std::numeric_limits<double>::infinity();
  const Tensor beyond = q.masked_fill(q <= positive.unsqueeze(2), none).amin(2);
  return at::where(at::isfinite(beyond), beyond, q.amin(2));
}

Tensor by_dense(const PartContrastWork& work) {
  const Index batch = work.z1.size(0), parts = work.z1.size(1);
  const Tensor root = at::linalg_cholesky(dense_metric(work));
  const auto solve = [&](const Tensor& rows) {
    return at::linalg_solve_triangular(root, rows.transpose(1, 2), /*upper=*/false);
  };
  const Tensor pool = at::cat({work.z1.flatten(0, 1), work.z2.flatten(0, 1)});
  const Tensor white = solve(pool.expand({batch, -1, -1})).transpose(1, 2);
  const Tensor anchor = solve(work.z1).transpose(1, 2);
  const Tensor positive = solve(work.z1 - work.z2).square().sum(1);
  const Tensor q = anchor.square().sum(2, true) + white.square().sum(2).unsqueeze(1) -
                   2 * at::matmul(anchor, white.transpose(1, 2));
  const Tensor allowed = allowed_distances(q.clamp_min(0), work.targets, parts);
  return hinge_of(positive, semi_hard(allowed, positive.detach()), work);
}

Tensor by_loops(const PartContrastWork& work) {
  const Index batch = work.z1.size(0), parts = work.z1.size(1);
  const Tensor sigma = dense_metric(work);
  const Tensor pool = at::cat({work.z1.flatten(0, 1), work.z2.flatten(0, 1)});
  std::vector<Tensor> positive, all;
  for (Index b = 0; b < batch; ++b) {
    const Tensor root = at::linalg_cholesky(sigma[b]);
    const auto distance = [&](const Tensor& x) {
      return (x * at::cholesky_solve(x.unsqueeze(1), root).squeeze(1)).sum();
    };
    for (Index k = 0; k < parts; ++k) {
      positive.push_back(distance(work.z1[b][k] - work.z2[b][k]));
      for (Index n = 0; n < pool.size(0); ++n) all.push_back(distance(work.z1[b][k] - pool[n]));
    }
  }
  const Tensor to = at::stack(positive).reshape({batch, parts});
  const Tensor q = at::stack(all).reshape({batch, parts, pool.size(0)});
  return hinge_of(to, semi_hard(allowed_distances(q, work.targets, parts), to.detach()), work);
}

}  // namespace

double active_share(const PartContrastWork& work) {
  const at::NoGradGuard no_grad;
  return contrast_of(work).active_share.item<double>();
}

PartContrastRun part_contrast_run(const std::string& way) {
  if (way == "hone") return by_hone;
  if (way == "dense") return by_dense;
  if (way == "operators") return by_operators;
  if (way == "loops") return by_loops;
  fail_argument("bench paco", "dense, operators or loops", way);
}

}  // namespace hone::bench
