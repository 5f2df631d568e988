// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/sketch/apply.h"

#include "hone/core/machine/trace.h"
#include "hone/kernels/sketch/apply_kind.h"
#include "hone/kernels/sketch/sketch_draw.h"

namespace hone::kernels {
namespace {

template <class T>
void apply(const SketchProduct<T>& product, Executor& executor) {
  HONE_TRACE_ZONE("apply_sketch", {"rows", product.op.rows}, {"cols", product.op.cols},
                  {"width", product.a.cols});
  if (is_dense(product.op.kind)) {
    apply_dense(product, executor);
  } else if (product.op.kind == SketchKind::Srht) {
    apply_srht(product, executor);
  } else {
    apply_sparse(product, executor);
  }
}

// The side of A that meets S is `inner`, 0 from the left and 1 from the right.
void apply_on(std::string_view name, const SketchOp& op, bool is_transposed, int inner,
              const ConstTensorView& a, const TensorView& out, Executor& executor) {
  check_sketch(name, op);
  const ByteRange from = check_matrix(name, "A", a), to = check_output(name, "out", out);
  const Index length = is_transposed ? op.rows : op.cols;
  const Index result = is_transposed ? op.cols : op.rows;
  Shape wanted = a.shape;
  wanted[inner] = length;
  HONE_CHECK(a.shape == wanted, name, concat("A of shape ", to_text(wanted)), to_text(a.shape));
  wanted[inner] = result;
  HONE_CHECK(out.shape == wanted, name, concat("out of shape ", to_text(wanted)),
             to_text(out.shape));
  HONE_CHECK(a.dtype == out.dtype, name, concat("out in ", name_of(a.dtype), ", as A"),
             name_of(out.dtype));
  HONE_REQUIRE(!from.overlaps(to), name, "A and out share memory.");
  if (wanted[1 - inner] == 0) return;
  const auto run = [&](auto matrix, auto into) {
    if (inner == 1) matrix = matrix.transposed(), into = into.transposed();
    apply<std::remove_reference_t<decltype(*into.data)>>({op, is_transposed, matrix, into},
                                                         executor);
  };
  if (a.dtype == Dtype::Float32) {
    run(as_strided<float>(a), as_strided<float>(out));
  } else {
    run(as_strided<double>(a), as_strided<double>(out));
  }
}

}  // namespace

void apply_left(const SketchOp& op, Transpose transpose, const ConstTensorView& a,
                const TensorView& out, Executor& executor) {
  apply_on("apply_left", op, transpose == Transpose::Yes, 0, a, out, executor);
}

void apply_right(const SketchOp& op, Transpose transpose, const ConstTensorView& a,
                 const TensorView& out, Executor& executor) {
  // A S = (S^T A^T)^T
  apply_on("apply_right", op, transpose == Transpose::No, 1, a, out, executor);
}

}  // namespace hone::kernels
