// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/paco/part_factor.h"

#include <string_view>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/paco/helmert.h"

namespace hone::kernels {
namespace {

void check_sizes(std::string_view op, Index batch, Index parts, Index dim) {
  HONE_CHECK(batch >= 0, op, "batch >= 0", batch);
  HONE_CHECK(parts > 0, op, "parts > 0", parts);
  HONE_CHECK(dim > 0, op, "dim > 0", dim);
}

}  // namespace

void part_factor(const PartFactorArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("part_factor", {"batch", args.batch}, {"parts", args.parts}, {"dim", args.dim});
  check_sizes("part_factor", args.batch, args.parts, args.dim);
  const HelmertRows helmert(args.parts, 2 * (args.parts - 1));
  const Index view = args.parts * args.dim, rows = (args.parts - 1) * args.dim;
  executor.parallel_for(args.batch, rows_per_chunk(4 * view), [&](Index begin, Index end, int) {
    for (Index image = begin; image < end; ++image) {
      double* factor = args.factor + image * 2 * rows;
      helmert.apply(args.z1 + image * view, args.dim, factor);
      helmert.apply(args.z2 + image * view, args.dim, factor + rows);
    }
  });
}

void part_factor_grad(const PartFactorGradArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("part_factor_grad", {"batch", args.batch}, {"parts", args.parts},
                  {"dim", args.dim});
  check_sizes("part_factor_grad", args.batch, args.parts, args.dim);
  const HelmertRows helmert(args.parts, 2 * (args.parts - 1));
  const Index view = args.parts * args.dim, rows = (args.parts - 1) * args.dim;
  executor.parallel_for(args.batch, rows_per_chunk(4 * view), [&](Index begin, Index end, int) {
    for (Index image = begin; image < end; ++image) {
      const double* grad = args.grad_factor + image * 2 * rows;
      helmert.add_adjoint(grad, args.dim, args.grad_z1 + image * view);
      helmert.add_adjoint(grad + rows, args.dim, args.grad_z2 + image * view);
    }
  });
}

}  // namespace hone::kernels
