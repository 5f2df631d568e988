// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"
#include "hone/kernels/sketch/sketch_op.h"
#include "hone/kernels/sketch/strided.h"

namespace hone::kernels {

// out = S a, or S^T a if transposed. There is one function below for each way to apply an operator.
// They check nothing.
template <class T>
struct SketchProduct {
  const SketchOp& op;
  bool is_transposed = false;
  Strided<const T> a;
  Strided<T> out;
};

void apply_dense(const SketchProduct<float>& product, Executor& executor);
void apply_dense(const SketchProduct<double>& product, Executor& executor);
void apply_sparse(const SketchProduct<float>& product, Executor& executor);
void apply_sparse(const SketchProduct<double>& product, Executor& executor);
void apply_srht(const SketchProduct<float>& product, Executor& executor);
void apply_srht(const SketchProduct<double>& product, Executor& executor);

}  // namespace hone::kernels
