// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/kernels/paco/mine_negative.h"
#include "hone/kernels/paco/ridge_distance.h"

namespace hone::kernels {
namespace {

double norm_of(const double* x, Index dim) {
  double square = 0;
  for (Index c = 0; c < dim; ++c) square += x[c] * x[c];
  return std::max(std::sqrt(square), 1e-12);
}

double cosine_of(const double* a, const double* b, Index dim) {
  double sum = 0;
  for (Index c = 0; c < dim; ++c) sum += a[c] * b[c];
  return sum / (norm_of(a, dim) * norm_of(b, dim));
}

// The rows that compete for one anchor, in ascending order.
std::vector<Index> competitors(const MineNegativeArgs& args, Index image, const double* anchor) {
  std::vector<Index> rows;
  for (Index row = 0; row < args.pool_rows; ++row) {
    const bool is_own = args.owner != nullptr && args.owner[row] == image;
    const bool has_label =
        args.pool_label != nullptr && args.pool_label[row] == args.anchor_label[image];
    if (!is_own && !has_label) rows.push_back(row);
  }
  if (args.top_m == 0 || args.top_m >= static_cast<Index>(rows.size())) return rows;
  const auto cosine = [&](Index row) {
    return cosine_of(anchor, args.pool + row * args.dim, args.dim);
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](Index a, Index b) { return cosine(a) > cosine(b); });
  rows.resize(static_cast<std::size_t>(args.top_m));
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace

void mine_negative_ref(const MineNegativeArgs& args) {
  const auto dim = static_cast<std::size_t>(args.dim);
  for (Index at = 0; at < args.batch * args.parts; ++at) {
    const Index image = at / args.parts;
    const double* anchor = args.anchor + at * args.dim;
    const std::vector<Index> rows = competitors(args, image, anchor);
    std::vector<double> x(rows.size() * dim), q(rows.size());
    std::vector<double> y(rows.size() * static_cast<std::size_t>(args.rank));
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = anchor[i % dim] - args.pool[static_cast<std::size_t>(rows[i / dim]) * dim + i % dim];
    ridge_distance_ref({.batch = 1,
                        .rows = static_cast<Index>(rows.size()),
                        .rank = args.rank,
                        .dim = args.dim,
                        .factor = args.factor + image * args.rank * args.dim,
                        .delta = args.delta + image,
                        .x = x.data(),
                        .y = y.data(),
                        .q = q.data()});
    std::size_t any = rows.size(), beyond = rows.size();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!std::isfinite(q[i])) continue;
      if (any == rows.size() || q[i] < q[any]) any = i;
      if (args.mode == MineMode::Hardest || !(q[i] > args.positive_q[at])) continue;
      if (beyond == rows.size() || q[i] < q[beyond]) beyond = i;
    }
    const std::size_t best = beyond < rows.size() ? beyond : any;
    args.found[at] = best < rows.size();
    args.index[at] = best < rows.size() ? rows[best] : 0;
  }
}

}  // namespace hone::kernels
