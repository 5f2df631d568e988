// SPDX-License-Identifier: Apache-2.0
#include "hone/train/linalg/sketch_tensor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/error_of.h"
#include "tests/train/linalg/matrices.h"

namespace hone::linalg {
namespace {

using kernels::SketchKind;
using kernels::SketchOp;
using namespace test;

constexpr SketchKind kKinds[] = {SketchKind::Gaussian,    SketchKind::Rademacher,
                                 SketchKind::SparseSign,  SketchKind::SparseSignLong,
                                 SketchKind::CountSketch, SketchKind::Sjlt,
                                 SketchKind::Srht};

TEST(Dense, HasTheEntriesOfTheKernels) {
  for (const SketchKind kind : kKinds) {
    const SketchOp op{.kind = kind, .rows = 6, .cols = 20, .seed = 3, .nnz = 2};
    const std::vector<double> wanted = kernels::materialize_ref(op);
    const Tensor s = dense(op, at::kDouble);
    const Tensor reference = at::tensor(wanted, at::kDouble).view({6, 20});
    EXPECT_LT(largest(s - reference), 1e-12) << static_cast<int>(kind);
    EXPECT_EQ(dense(op).scalar_type(), at::kFloat);
    EXPECT_LT(largest(dense(op) - reference), 1e-6);
  }
}

// Signs from rounded uniform numbers have zeros in half precision, and more of one sign.
TEST(Dense, HasNoZerosAmongSignsInHalfPrecision) {
  const SketchOp op{.kind = SketchKind::Rademacher, .rows = 400, .cols = 500, .seed = 4};
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const Tensor s = dense(op, type);
    EXPECT_EQ(s.scalar_type(), type);
    EXPECT_EQ(s.count_nonzero().item<Index>(), s.numel());
    const double mean = s.sign().to(at::kDouble).mean().item<double>();
    EXPECT_LT(std::abs(mean), 5 / std::sqrt(static_cast<double>(s.numel())));
  }
}

// Operators stored as sparse matrices lose rows and columns that end up empty.
TEST(Dense, HasTheShapeThatIsAskedForWhereRowsAreEmpty) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Tensor s = dense({.kind = SketchKind::CountSketch, .rows = 50, .cols = 3, .seed = seed});
    EXPECT_EQ(s.sizes(), (std::vector<std::int64_t>{50, 3}));
  }
}

TEST(Dense, RefusesTypesAndSizes) {
  const SketchOp op{.rows = 2, .cols = 3};
  EXPECT_EQ(refusal([&] { dense(op, at::kLong); }),
            "[dense] expected a real floating-point type, got Long");
  EXPECT_EQ(refusal([&] { dense(op, at::kComplexFloat); }),
            "[dense] expected a real floating-point type, got ComplexFloat");
  EXPECT_NE(refusal([] { dense({.rows = 0, .cols = 3}); }), "");
  EXPECT_NE(refusal([] { dense({.kind = SketchKind::Sjlt, .rows = 4, .cols = 9, .nnz = 5}); }), "");
}

TEST(SketchTensor, AppliesTheOperatorAlongEveryAxis) {
  const Tensor x = gaussian(6 * 10, 14, 5).view({6, 10, 14});
  for (const SketchKind kind : kKinds) {
    for (Index axis = -3; axis < 3; ++axis) {
      const Index size = x.size(axis);
      SketchOp op{.kind = kind, .seed = 6};
      const Tensor y = sketch_tensor(x, axis, 4, op);
      op.rows = 4;
      op.cols = size;
      const Tensor wanted = at::tensordot(x, dense(op, at::kDouble), {axis}, {1}).movedim(-1, axis);
      EXPECT_TRUE(y.is_contiguous());
      ASSERT_EQ(y.sizes(), wanted.sizes());
      EXPECT_LT(largest(y - wanted), 1e-12) << static_cast<int>(kind) << " axis " << axis;
    }
  }
}

TEST(SketchTensor, KeepsTheTypeOfItsInput) {
  const Tensor x = gaussian(8, 30, 7);
  const SketchOp op{.kind = SketchKind::Rademacher, .seed = 8};
  const Tensor wanted = sketch_tensor(x, 1, 10, op);
  const auto error = [&](at::ScalarType type) {
    const Tensor y = sketch_tensor(x.to(type), 1, 10, op);
    EXPECT_EQ(y.scalar_type(), type);
    return frobenius(y.to(at::kDouble) - wanted) / frobenius(wanted);
  };
  EXPECT_LT(error(at::kFloat), 1e-6);
  EXPECT_LT(error(at::kHalf), 1e-3);
  EXPECT_LT(error(at::kBFloat16), 8e-3);
}

TEST(SketchTensor, ReadsAnyStridesAndTakesEmptyTensors) {
  const Tensor x = gaussian(40, 30, 9), strided = x.t().slice(0, 1, 30, 3);
  const SketchOp op{.kind = SketchKind::SparseSign, .nnz = 2};
  const Tensor wanted = sketch_tensor(strided.contiguous(), 1, 8, op);
  EXPECT_TRUE(sketch_tensor(strided, 1, 8, op).equal(wanted));
  const Tensor expanded = x.narrow(0, 0, 1).expand({12, 30});
  EXPECT_LT(
      largest(sketch_tensor(expanded, 0, 5, op) - sketch_tensor(expanded.contiguous(), 0, 5, op)),
      1e-14);
  EXPECT_EQ(sketch_tensor(at::zeros({9, 0, 2}), 0, 3, op).sizes(),
            (std::vector<std::int64_t>{3, 0, 2}));
}

TEST(SketchTensor, MakesAnAxisLongerOnlyOnRequest) {
  const Tensor x = gaussian(5, 3, 10);
  EXPECT_EQ(refusal([&] { sketch_tensor(x, 0, 8, {}); }),
            "[sketch_tensor] expected a new size of at most 5, unless the operator has as many "
            "rows, got 8");
  EXPECT_EQ(sketch_tensor(x, 0, 8, {.rows = 8}).sizes(), (std::vector<std::int64_t>{8, 3}));
}

TEST(SketchTensor, RefusesOtherInputInOneSentence) {
  const Tensor x = gaussian(5, 3, 11);
  EXPECT_EQ(refusal([&] { sketch_tensor(x, 2, 2, {}); }),
            "[sketch_tensor] expected an axis of 2, got 2");
  EXPECT_EQ(refusal([&] { sketch_tensor(x, -3, 2, {}); }),
            "[sketch_tensor] expected an axis of 2, got -3");
  EXPECT_EQ(refusal([&] { sketch_tensor(x.to(at::kInt), 0, 2, {}); }),
            "[sketch_tensor] expected a dense tensor of a real floating-point type, got Int");
  EXPECT_EQ(refusal([&] { sketch_tensor(x, 0, 2, {.rows = 3}); }),
            "[sketch_tensor] expected an operator of 2 rows, the new size, got 3");
  EXPECT_EQ(refusal([&] { sketch_tensor(x, 0, 2, {.cols = 6}); }),
            "[sketch_tensor] expected an operator of 5 columns, as the axis is long, got 6");
  EXPECT_NE(refusal([&] { sketch_tensor(x, 0, 0, {}); }), "");
  EXPECT_NE(refusal([&] { sketch_tensor({}, 0, 1, {}); }), "");
}

}  // namespace
}  // namespace hone::linalg
