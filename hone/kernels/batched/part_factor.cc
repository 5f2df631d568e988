// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/batched/part_factor.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/trace.h"

namespace hone::kernels {
namespace {

void check_sizes(std::string_view op, Index batch, Index parts, Index dim) {
  HONE_CHECK(batch >= 0, op, "batch >= 0", batch);
  HONE_CHECK(parts > 0, op, "parts > 0", parts);
  HONE_CHECK(dim > 0, op, "dim > 0", dim);
}

// 1 / sqrt(i (i + 1) 2 (parts - 1)) at i; 0 at 0.
std::vector<double> scales_of(Index parts) {
  std::vector<double> scales(static_cast<std::size_t>(parts));
  for (Index i = 1; i < parts; ++i) {
    const auto square = static_cast<double>(2 * i * (i + 1) * (parts - 1));
    scales[static_cast<std::size_t>(i)] = 1 / std::sqrt(square);
  }
  return scales;
}

// One view of one image; `scales` is scales_of(parts).
void factor_of_view(const double* z, const double* scales, Index parts, Index dim, double* factor) {
  for (Index c = 0; c < dim; ++c) {
    double sum = 0;  // over the parts before i, as differences to the first
    for (Index i = 1; i < parts; ++i) {
      const double part = z[i * dim + c] - z[c];
      factor[(i - 1) * dim + c] = (sum - static_cast<double>(i) * part) * scales[i];
      sum += part;
    }
  }
}

void add_grad_of_view(const double* grad, const double* scales, Index parts, Index dim,
                      double* grad_z) {
  for (Index c = 0; c < dim; ++c) {
    double sum = 0;  // over the rows that hold part i with weight 1
    for (Index i = parts - 1; i > 0; --i) {
      const double scaled = grad[(i - 1) * dim + c] * scales[i];
      grad_z[i * dim + c] += sum - static_cast<double>(i) * scaled;
      sum += scaled;
    }
    grad_z[c] += sum;
  }
}

}  // namespace

void part_factor(const PartFactorArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("part_factor", {"batch", args.batch}, {"parts", args.parts}, {"dim", args.dim});
  check_sizes("part_factor", args.batch, args.parts, args.dim);
  const std::vector<double> scales = scales_of(args.parts);
  const Index view = args.parts * args.dim, rows = (args.parts - 1) * args.dim;
  executor.parallel_for(args.batch, rows_per_chunk(4 * view), [&](Index begin, Index end, int) {
    for (Index image = begin; image < end; ++image) {
      double* factor = args.factor + image * 2 * rows;
      factor_of_view(args.z1 + image * view, scales.data(), args.parts, args.dim, factor);
      factor_of_view(args.z2 + image * view, scales.data(), args.parts, args.dim, factor + rows);
    }
  });
}

void part_factor_grad(const PartFactorGradArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("part_factor_grad", {"batch", args.batch}, {"parts", args.parts},
                  {"dim", args.dim});
  check_sizes("part_factor_grad", args.batch, args.parts, args.dim);
  const std::vector<double> scales = scales_of(args.parts);
  const Index view = args.parts * args.dim, rows = (args.parts - 1) * args.dim;
  executor.parallel_for(args.batch, rows_per_chunk(4 * view), [&](Index begin, Index end, int) {
    for (Index image = begin; image < end; ++image) {
      const double* grad = args.grad_factor + image * 2 * rows;
      add_grad_of_view(grad, scales.data(), args.parts, args.dim, args.grad_z1 + image * view);
      add_grad_of_view(grad + rows, scales.data(), args.parts, args.dim,
                       args.grad_z2 + image * view);
    }
  });
}

}  // namespace hone::kernels
