// SPDX-License-Identifier: Apache-2.0
#include "hone/train/linalg/sketch_tensor.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <string_view>
#include <vector>

#include "hone/core/check.h"
#include "hone/kernels/sketch/apply.h"
#include "hone/train/exact_scope.h"
#include "hone/train/interop.h"

namespace hone::linalg {
namespace {

using at::Tensor;

constexpr std::string_view kSketchTensor = "sketch_tensor";

}  // namespace

namespace detail {

void sketch_rows(const kernels::SketchOp& op, bool transposed, const Tensor& a, Tensor& out) {
  kernels::apply_left(op, transposed ? kernels::Transpose::Yes : kernels::Transpose::No,
                      view_of(a, "the matrix"), view_of(out, "the sketch"), libtorch_executor());
}

}  // namespace detail

Tensor dense(const kernels::SketchOp& op, const at::TensorOptions& options) {
  const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  HONE_CHECK(at::isFloatingType(type), "dense", "a real floating-point type", at::toString(type));
  kernels::isometry_scale(op);  // checks sizes before memory is allocated
  Tensor result = at::empty({op.rows, op.cols}, type == at::kDouble ? at::kDouble : at::kFloat);
  kernels::materialize(op, 0, 0, view_of(result, "the operator"), libtorch_executor());
  return result.to(options.dtype(type));
}

Tensor sketch_tensor(const Tensor& x, Index axis, Index new_size, kernels::SketchOp op) {
  HONE_REQUIRE(x.defined(), kSketchTensor, "The tensor is undefined.");
  HONE_CHECK(x.is_floating_point() && x.layout() == at::kStrided, kSketchTensor,
             "a dense tensor of a real floating-point type", at::toString(x.scalar_type()));
  const Index dims = x.dim();
  HONE_CHECK(axis >= -dims && axis < dims, kSketchTensor, concat("an axis of ", dims), axis);
  if (axis < 0) axis += dims;
  const Index size = x.size(axis);
  HONE_CHECK(op.cols == 0 || op.cols == size, kSketchTensor,
             concat("an operator of ", size, " columns, as the axis is long"), op.cols);
  HONE_CHECK(op.rows == 0 || op.rows == new_size, kSketchTensor,
             concat("an operator of ", new_size, " rows, the new size"), op.rows);
  HONE_CHECK(new_size <= size || op.rows == new_size, kSketchTensor,
             concat("a new size of at most ", size, ", unless the operator has as many rows"),
             new_size);
  op.rows = new_size;
  op.cols = size;
  kernels::isometry_scale(op);  // checks the operator, also where x is empty
  const c10::NoGradGuard no_grad;
  const ExactScope exact;
  const Tensor moved = in_working_type(x.detach()).movedim(axis, 0);
  std::vector<std::int64_t> shape = moved.sizes().vec();
  const Tensor columns = moved.reshape({size, x.numel() / size});
  Tensor result;
  if (x.is_cpu()) {
    result = at::empty({new_size, columns.size(1)}, columns.options());
    detail::sketch_rows(op, /*transposed=*/false, columns, result);
  } else {
    result = at::mm(dense(op, columns.options()), columns);
  }
  shape[0] = new_size;
  return result.view(shape).movedim(0, axis).to(x.scalar_type()).contiguous();
}

}  // namespace hone::linalg
