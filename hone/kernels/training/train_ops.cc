// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/training/train_ops.h"

#include <algorithm>
#include <vector>

#include "hone/core/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/training/train_ops.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/training/train_ops-inl.h"

#if HWY_ONCE
namespace hone::kernels::training {
namespace {

HWY_EXPORT(add_rms_norm_rows);
HWY_EXPORT(add_rms_norm_grad_rows);
HWY_EXPORT(swiglu_rows);
HWY_EXPORT(swiglu_grad_rows);
HWY_EXPORT(rope_rows);
HWY_EXPORT(cross_entropy_rows);

// Rows per chunk: about 16 Ki floats, half of a 128 KiB share of the level-2 cache.
Index rows_per_chunk(Index row_floats) {
  return std::max<Index>(1, 16384 / std::max<Index>(1, row_floats));
}

template <class Rows>
void run_rows(Index rows, Index row_floats, Executor& executor, const Rows& body) {
  if (rows == 0) return;
  executor.parallel_for(rows, rows_per_chunk(row_floats),
                        [&](Index begin, Index end, int) { body(begin, end); });
}

}  // namespace

void add_rms_norm(const AddRmsNorm& op, Executor& executor) {
  HONE_CHECK(op.dim > 0, "add_rms_norm", "dim > 0", op.dim);
  run_rows(op.rows, op.dim, executor, [&](Index begin, Index end) {
    HWY_DYNAMIC_DISPATCH(add_rms_norm_rows)(op, begin, end);
  });
}

// Chunks depend on the shape alone, and their sums are added in order: same bits for any worker
// count.
void add_rms_norm_grad(const AddRmsNormGrad& op, Executor& executor) {
  HONE_CHECK(op.dim > 0, "add_rms_norm_grad", "dim > 0", op.dim);
  std::fill_n(op.grad_weight, op.dim, 0.0f);
  if (op.rows == 0) return;
  const Index grain = rows_per_chunk(op.dim), chunks = (op.rows + grain - 1) / grain;
  std::vector<float> partial(static_cast<std::size_t>(chunks * op.dim));
  executor.parallel_for(op.rows, grain, [&](Index begin, Index end, int) {
    HWY_DYNAMIC_DISPATCH(add_rms_norm_grad_rows)
    (op, begin, end, partial.data() + begin / grain * op.dim);
  });
  for (Index chunk = 0; chunk < chunks; ++chunk) {
    const float* from = partial.data() + chunk * op.dim;
    for (Index i = 0; i < op.dim; ++i) op.grad_weight[i] += from[i];
  }
}

void swiglu(const SwiGlu& op, Executor& executor) {
  run_rows(op.rows, 2 * op.dim, executor, [&](Index begin, Index end) {
    HWY_DYNAMIC_DISPATCH(swiglu_rows)(op, begin, end);
  });
}

void swiglu_grad(const SwiGluGrad& op, Executor& executor) {
  run_rows(op.rows, 2 * op.dim, executor, [&](Index begin, Index end) {
    HWY_DYNAMIC_DISPATCH(swiglu_grad_rows)(op, begin, end);
  });
}

void rope(const Rope& op, Executor& executor) {
  HONE_CHECK(op.head_dim % 2 == 0, "rope", "an even head_dim", op.head_dim);
  HONE_CHECK(op.positions > 0, "rope", "positions > 0", op.positions);
  run_rows(op.rows, op.heads * op.head_dim, executor, [&](Index begin, Index end) {
    HWY_DYNAMIC_DISPATCH(rope_rows)(op, begin, end);
  });
}

void cross_entropy(const CrossEntropy& op, Executor& executor) {
  HONE_CHECK(op.classes > 0, "cross_entropy", "classes > 0", op.classes);
  for (Index row = 0; row < op.rows; ++row) {
    HONE_CHECK(op.targets[row] < op.classes, "cross_entropy", concat("targets below ", op.classes),
               op.targets[row]);
  }
  run_rows(op.rows, op.classes, executor, [&](Index begin, Index end) {
    HWY_DYNAMIC_DISPATCH(cross_entropy_rows)(op, begin, end);
  });
}

}  // namespace hone::kernels::training
#endif  // HWY_ONCE
