// SPDX-License-Identifier: Apache-2.0
#include "hone/train/paco/mining.h"

#include <ATen/ATen.h>

#include <limits>

#include "hone/core/check.h"
#include "hone/train/interop.h"

namespace hone::paco {
namespace {

using torch::Tensor;

// Rows of the two views' parts that may be negatives, or undefined for all of them.
struct Pool {
  Tensor rows;   // [pool, dim]
  Tensor index;  // int64 [pool]: where these are among all parts; undefined: all, in order
  Tensor owner;  // int64 [pool]: their image
};

// For each image another one.
Tensor draw_images(Index batch, const at::TensorOptions& options) {
  const Tensor own = at::arange(batch, options);
  if (batch < 2) return own;
  const Tensor step = at::randint(1, batch, {batch}, options);
  return (own + step).remainder(batch);
}

Pool make_pool(const PartMetric& metric, const Tensor& pool_images, bool draws) {
  const Index batch = metric.z1.size(0), parts = metric.z1.size(1);
  const auto counts = metric.z1.options().dtype(at::kLong);
  Pool pool;
  pool.rows = at::cat({metric.z1.flatten(0, 1), metric.z2.flatten(0, 1)}).contiguous();
  const Tensor owner = at::arange(batch, counts).repeat_interleave(parts).repeat({2});
  pool.owner = owner;
  if (!draws) return pool;
  HONE_CHECK(
      !pool_images.defined() || (pool_images.scalar_type() == at::kLong && pool_images.dim() == 1),
      "mine_negatives", "pool_images as int64 numbers", c10::str(pool_images.sizes()));
  const Tensor images = pool_images.defined() ? pool_images : draw_images(batch, counts);
  const Tensor first = at::arange(parts, counts).unsqueeze(0) + images.unsqueeze(1) * parts;
  pool.index = at::cat({first, first + batch * parts}, 1).flatten();
  pool.rows = pool.rows.index_select(0, pool.index).contiguous();
  pool.owner = owner.index_select(0, pool.index).contiguous();
  return pool;
}

MinedNegatives in_all_parts(const Pool& pool, const Tensor& chosen, const Tensor& found) {
  if (!pool.index.defined()) return {chosen, found};
  return {pool.index.index_select(0, chosen.flatten()).reshape_as(chosen), found};
}

}  // namespace

namespace composed {

MinedNegatives mine_negatives(const PartMetric& metric, const Tensor& positive_q,
                              const Tensor& targets, const Tensor& pool_images,
                              const MiningOptions& options) {
  const at::NoGradGuard no_grad;
  if (options.top_m > 0) {
    fail_unsupported("mine_negatives", concat("no top_m on ", metric.z1.device().str()),
                     concat(options.top_m));
  }
  const Pool pool = make_pool(metric, pool_images, options.draws_images);
  const Index batch = metric.z1.size(0), rows = pool.rows.size(0);
  const Tensor root = metric.chol.to(metric.z1.scalar_type());
  // V = L⁻¹ Aᵀ; q = (|p - n|² - |V (p - n)|²) / δ.
  const Tensor v = at::linalg_solve_triangular(root, metric.factor, /*upper=*/false);
  const Tensor center = pool.rows.mean(0);
  const Tensor anchor = metric.z1 - center, other = (pool.rows - center).expand({batch, -1, -1});
  const Tensor of_anchor = at::matmul(anchor, v.transpose(1, 2));
  const Tensor of_other = at::matmul(other, v.transpose(1, 2));
  const Tensor near = at::cdist(anchor, other).square() - at::cdist(of_anchor, of_other).square();
  Tensor q = near.clamp_min(0) / metric.delta.reshape({batch, 1, 1});
  const double none = std::numeric_limits<double>::infinity();
  Tensor allowed = at::ones({batch, rows}, q.options().dtype(at::kBool));
  if (options.mask_owner) {
    allowed &= pool.owner.unsqueeze(0) != at::arange(batch, pool.owner.options()).unsqueeze(1);
  }
  if (options.mask_class) {
    allowed &= targets.index_select(0, pool.owner).unsqueeze(0) != targets.unsqueeze(1);
  }
  q = q.masked_fill(allowed.logical_not().unsqueeze(1), none);
  const auto [nearest, at_nearest] = q.min(2);
  const Tensor found = at::isfinite(nearest);
  if (options.mode == kernels::MineMode::Hardest) {
    return in_all_parts(pool, at_nearest.masked_fill(found.logical_not(), 0), found);
  }
  // The positive, which may be in the pool, is not beyond itself by rounding.
  const Tensor lengths = anchor.square().sum(2) + other.square().sum(2).amax(1, true);
  const double epsilon = q.scalar_type() == at::kDouble ? 0x1p-52 : 0x1p-23;
  const Tensor least = positive_q + 16 * epsilon * lengths / metric.delta.unsqueeze(1);
  const auto [beyond, at_beyond] = q.masked_fill(q <= least.unsqueeze(2), none).min(2);
  const Tensor chosen = at::where(at::isfinite(beyond), at_beyond, at_nearest);
  return in_all_parts(pool, chosen.masked_fill(found.logical_not(), 0), found);
}

}  // namespace composed

MinedNegatives mine_negatives(const PartMetric& metric, const Tensor& positive_q,
                              const Tensor& targets, const Tensor& pool_images,
                              const MiningOptions& options) {
  if (!metric.z1.is_cpu()) {
    return composed::mine_negatives(metric, positive_q, targets, pool_images, options);
  }
  const at::NoGradGuard no_grad;
  const Pool pool = make_pool(metric, pool_images, options.draws_images);
  const Tensor anchor = metric.z1.contiguous(), q = positive_q.contiguous();
  const Tensor factor = metric.factor.contiguous(), delta = metric.delta.contiguous();
  const Tensor label = targets.contiguous();
  const Tensor pool_label = label.index_select(0, pool.owner);
  const Index batch = anchor.size(0), parts = anchor.size(1);
  const Tensor row = at::empty({batch, parts}, at::kLong);
  const Tensor found = at::empty({batch, parts}, at::kByte);
  const auto numbers = [](const Tensor& from, bool used) {
    return used ? from.data_ptr<std::int64_t>() : nullptr;
  };
  kernels::mine_negative({.batch = batch,
                          .parts = parts,
                          .rank = factor.size(1),
                          .dim = anchor.size(2),
                          .pool_rows = pool.rows.size(0),
                          .anchor = anchor.data_ptr<double>(),
                          .positive_q = q.data_ptr<double>(),
                          .pool = pool.rows.data_ptr<double>(),
                          .owner = numbers(pool.owner, options.mask_owner),
                          .pool_label = numbers(pool_label, options.mask_class),
                          .anchor_label = numbers(label, options.mask_class),
                          .factor = factor.data_ptr<double>(),
                          .chol = metric.chol.data_ptr<double>(),
                          .delta = delta.data_ptr<double>(),
                          .mode = options.mode,
                          .top_m = options.top_m,
                          .index = row.data_ptr<std::int64_t>(),
                          .found = found.data_ptr<std::uint8_t>()},
                         libtorch_executor());
  return in_all_parts(pool, row, found.to(at::kBool));
}

}  // namespace hone::paco
