// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/paco/mine_pool.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hone::kernels {
namespace {

bool is_finite(double value) { return std::isfinite(value); }

// Any vector would do as a center, so rows that are not finite are left out.
void add_up(const double* pool, Index rows, Index dim, bool check, std::vector<double>& center) {
  Index count = 0;
  std::fill(center.begin(), center.end(), 0.0);
  for (Index row = 0; row < rows; ++row) {
    const double* from = pool + row * dim;
    if (check && !std::all_of(from, from + dim, is_finite)) continue;
    for (Index c = 0; c < dim; ++c) center[static_cast<std::size_t>(c)] += from[c];
    ++count;
  }
  for (double& value : center) value /= static_cast<double>(std::max<Index>(count, 1));
}

// Checks the rows one by one only where the sum says that one is not finite.
std::vector<double> mean_of(const double* pool, Index rows, Index dim) {
  std::vector<double> center(static_cast<std::size_t>(dim));
  add_up(pool, rows, dim, false, center);
  if (!std::all_of(center.begin(), center.end(), is_finite)) {
    add_up(pool, rows, dim, true, center);
  }
  return center;
}

std::vector<Index> padded(const Index* values, Index count, Index padded_count) {
  std::vector<Index> result(static_cast<std::size_t>(values == nullptr ? 0 : padded_count));
  if (values != nullptr) std::copy_n(values, count, result.begin());
  return result;
}

}  // namespace

MinePool::MinePool(const MineNegativeArgs& args, bool centered, Executor& executor)
    : rows(args.pool_rows),
      dim(args.dim),
      center(centered ? mean_of(args.pool, rows, dim)
                      : std::vector<double>(static_cast<std::size_t>(dim))),
      panels(panel_count() * kPanelRows * dim * static_cast<Index>(sizeof(double))),
      squares(static_cast<std::size_t>(panel_count() * kPanelRows),
              std::numeric_limits<double>::infinity()),
      owner(padded(args.owner, rows, panel_count() * kPanelRows)),
      label(padded(args.pool_label, rows, panel_count() * kPanelRows)) {
  const Index grain = rows_per_chunk(2 * kPanelRows * dim);
  executor.parallel_for(panel_count(), grain, [&](Index begin, Index end, int) {
    for (Index row = begin * kPanelRows; row < std::min(rows, end * kPanelRows); ++row) {
      const double* from = args.pool + row * dim;
      double* to = panels.as<double>() + row / kPanelRows * dim * kPanelRows + row % kPanelRows;
      for (Index c = 0; c < dim; ++c)
        to[c * kPanelRows] = from[c] - center[static_cast<std::size_t>(c)];
    }
    for (Index at = begin; at < end; ++at) {
      const Index first = at * kPanelRows, count = std::min(kPanelRows, rows - first);
      double sums[kPanelRows] = {};
      for (Index c = 0; c < dim; ++c)
        for (Index i = 0; i < kPanelRows; ++i)
          sums[i] += panel(at)[c * kPanelRows + i] * panel(at)[c * kPanelRows + i];
      std::copy_n(sums, count, squares.begin() + first);
    }
  });
}

}  // namespace hone::kernels
