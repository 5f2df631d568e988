// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/sketch/sketch_op.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "hone/core/thread/thread_pool.h"
#include "tests/kernels/sketch/sketch_support.h"

namespace hone::kernels {
namespace {

using test::all_ops;
using test::error_of;
using test::expect_same;
using test::Matrix;
using test::matrix_of;
using test::text_of;

constexpr std::pair<Index, Index> kShapes[] = {{1, 1},   {1, 7},    {7, 1},    {3, 5},   {5, 3},
                                               {16, 16}, {13, 130}, {130, 13}, {9, 700}, {65, 257}};

TEST(SketchOp, materializes_its_definition) {
  for (const auto& [rows, cols] : kShapes) {
    for (SketchOp op : all_ops(rows, cols)) {
      for (const bool scaled : {true, false}) {
        op.scaled = scaled;
        const std::vector<double> want = materialize_ref(op);
        Matrix<double> wide(rows, cols);
        Matrix<float> narrow(rows, cols);
        materialize(op, 0, 0, wide.view());
        materialize(op, 0, 0, narrow.view());
        // A radius, a sine and a product, of a size below 6.
        const double rounding = op.kind == SketchKind::Gaussian ? 32 : 0;
        for (std::size_t i = 0; i < want.size(); ++i) {
          ASSERT_NEAR(wide.values[i], want[i], rounding * 0x1p-53) << text_of(op) << " at " << i;
          ASSERT_NEAR(narrow.values[i], static_cast<float>(want[i]), rounding * 0x1p-24)
              << text_of(op) << " at " << i;
        }
      }
    }
  }
}

TEST(SketchOp, an_entry_does_not_depend_on_the_part_that_is_asked_for) {
  for (const SketchOp& op : all_ops(70, 1030)) {
    Matrix<double> whole = matrix_of(op);
    for (const auto& [row0, col0, rows, cols] :
         std::vector<std::array<Index, 4>>{{0, 0, 1, 1},
                                           {69, 1029, 1, 1},
                                           {3, 127, 5, 3},
                                           {0, 129, 70, 255},
                                           {11, 1, 2, 1029},
                                           {5, 5, 0, 7},
                                           {70, 1030, 0, 0}}) {
      for (const bool by_columns : {false, true}) {
        Matrix<double> part(rows, cols, by_columns, 2);
        const Matrix<double> before = part;
        materialize(op, row0, col0, part.view());
        Index gaps = 0;
        for (std::size_t i = 0; i < part.values.size(); ++i) gaps += part.values[i] == -77;
        EXPECT_EQ(gaps, 2 * (by_columns ? cols : rows)) << text_of(op);
        for (Index i = 0; i < rows; ++i) {
          for (Index j = 0; j < cols; ++j)
            ASSERT_EQ(part(i, j), whole(row0 + i, col0 + j)) << text_of(op);
        }
      }
    }
  }
}

TEST(SketchOp, threads_do_not_change_bits) {
  for (const SketchOp& op : all_ops(301, 403)) {
    Matrix<double> want = matrix_of(op);
    for (const int threads : {2, 4, 7}) {
      ThreadPool pool(threads);
      Matrix<double> got(op.rows, op.cols);
      materialize(op, 0, 0, got.view(), pool);
      expect_same(got, want, text_of(op));
    }
  }
}

// Which values there are, and how many.
TEST(SketchOp, signs_have_no_zeros_and_sparse_vectors_no_fewer_entries) {
  for (const auto& [rows, cols] : {std::pair<Index, Index>{12, 50}, {50, 12}, {12, 12}}) {
    for (SketchOp op : all_ops(rows, cols)) {
      op.scaled = false;
      if (op.kind == SketchKind::Gaussian) continue;
      Matrix<double> s = matrix_of(op);
      const double size = op.kind == SketchKind::Srht ? 1 / std::sqrt(cols <= 16 ? 16 : 64) : 1;
      std::vector<Index> in_row(static_cast<std::size_t>(rows)), in_col;
      in_col.resize(static_cast<std::size_t>(cols));
      for (Index i = 0; i < rows; ++i) {
        for (Index j = 0; j < cols; ++j) {
          if (s(i, j) == 0) continue;
          ASSERT_EQ(std::abs(s(i, j)), size) << text_of(op);
          ++in_row[static_cast<std::size_t>(i)], ++in_col[static_cast<std::size_t>(j)];
        }
      }
      const bool is_wide = rows <= cols;
      if (op.kind == SketchKind::Rademacher || op.kind == SketchKind::Srht) {
        EXPECT_EQ(in_row, std::vector<Index>(in_row.size(), cols)) << text_of(op);
      } else if (op.kind == SketchKind::CountSketch) {
        EXPECT_EQ(in_col, std::vector<Index>(in_col.size(), 1)) << text_of(op);
      } else if (op.kind == SketchKind::Sjlt || (op.kind == SketchKind::SparseSign) == is_wide) {
        EXPECT_EQ(in_col, std::vector<Index>(in_col.size(), 3)) << text_of(op);
      } else {
        EXPECT_EQ(in_row, std::vector<Index>(in_row.size(), 3)) << text_of(op);
      }
    }
  }
}

// Both ways to draw distinct positions, and all of them.
TEST(SketchOp, many_entries_are_distinct) {
  for (const Index nnz : {1, 2, 64, 65, 99, 100}) {
    for (const SketchKind kind : {SketchKind::SparseSign, SketchKind::Sjlt}) {
      Matrix<double> s = matrix_of({kind, 100, 200, 3, 0, nnz, false});
      for (Index j = 0; j < 200; ++j) {
        Index count = 0;
        for (Index i = 0; i < 100; ++i) count += std::abs(s(i, j)) == 1;
        ASSERT_EQ(count, nnz);
      }
    }
  }
}

TEST(SketchOp, a_column_of_an_sjlt_has_one_entry_in_each_block_of_rows) {
  Matrix<double> s = matrix_of({SketchKind::Sjlt, 11, 300, 8, 0, 3, false});
  for (Index j = 0; j < 300; ++j) {
    for (const auto& [begin, end] : {std::pair<Index, Index>{0, 3}, {3, 7}, {7, 11}}) {
      Index count = 0;
      for (Index i = begin; i < end; ++i) count += s(i, j) != 0;
      ASSERT_EQ(count, 1);
    }
  }
}

TEST(SketchOp, isometry_scales_are_the_closed_forms) {
  const auto scale = [](SketchKind kind, Index rows, Index cols, Index nnz = 1) {
    return isometry_scale({kind, rows, cols, 0, 0, nnz});
  };
  EXPECT_DOUBLE_EQ(scale(SketchKind::Gaussian, 16, 100), 0.25);
  EXPECT_DOUBLE_EQ(scale(SketchKind::Rademacher, 16, 100), 0.25);
  EXPECT_DOUBLE_EQ(scale(SketchKind::CountSketch, 16, 100, 9), 1);
  EXPECT_DOUBLE_EQ(scale(SketchKind::Sjlt, 16, 100, 4), 0.5);
  EXPECT_DOUBLE_EQ(scale(SketchKind::SparseSign, 16, 100, 4), 0.5);
  EXPECT_DOUBLE_EQ(scale(SketchKind::SparseSignLong, 16, 100, 4), 1.25);
  EXPECT_DOUBLE_EQ(scale(SketchKind::SparseSignLong, 100, 16, 4), 0.5);
  EXPECT_DOUBLE_EQ(scale(SketchKind::Srht, 8, 100), 4);
}

TEST(SketchOp, the_next_stream_seed_or_kind_has_other_bits) {
  for (const SketchOp& op : all_ops(40, 60)) {
    const SketchOp next = next_stream(op);
    EXPECT_EQ(next.stream, op.stream + 1);
    SketchOp other = op;
    other.seed ^= std::uint64_t{1} << 40;
    Matrix<double> a = matrix_of(op), b = matrix_of(next), c = matrix_of(other);
    EXPECT_NE(a.values, b.values) << text_of(op);
    EXPECT_NE(a.values, c.values) << text_of(op);
    EXPECT_NE(b.values, c.values) << text_of(op);
  }
}

TEST(SketchOp, errors_say_what_is_expected) {
  const auto run = [](const SketchOp& op) { return error_of([&] { isometry_scale(op); }); };
  const std::string sizes = "[isometry_scale] expected rows and cols of 1 to 1073741824, got ";
  constexpr Index kMost = std::numeric_limits<Index>::max();
  EXPECT_EQ(run({SketchKind::Gaussian, 0, 5}), sizes + "[0, 5]");
  EXPECT_EQ(run({SketchKind::Srht, 5, -1}), sizes + "[5, -1]");
  EXPECT_EQ(run({SketchKind::Sjlt, kMost, kMost}),
            sizes + "[9223372036854775807, 9223372036854775807]");
  EXPECT_EQ(run({SketchKind::Srht, 6, 5}),
            "[isometry_scale] expected no more rows than cols in an SRHT, got [6, 5]");
  EXPECT_EQ(run({static_cast<SketchKind>(7), 6, 5}),
            "[isometry_scale] expected a kind of sketch, got kind 7");
  EXPECT_EQ(run({SketchKind::Sjlt, 6, 5, 0, 0, 7}),
            "[isometry_scale] expected nnz of 1 to 6, got 7");
  EXPECT_EQ(run({SketchKind::SparseSign, 6, 5, 0, 0, 6}),
            "[isometry_scale] expected nnz of 1 to 5, got 6");
  EXPECT_EQ(run({SketchKind::SparseSignLong, 6, 5, 0, 0, 0}),
            "[isometry_scale] expected nnz of 1 to 6, got 0");
  EXPECT_EQ(run({SketchKind::Sjlt, 6, 5, 0, 0, -1}),
            "[isometry_scale] expected nnz of 1 to 6, got -1");
  EXPECT_EQ(error_of([] {
              next_stream({SketchKind::Gaussian, 2, 2, 0, 0xffffffffu});
            }),
            "[next_stream] The last of 2^32 streams has no successor.");
}

TEST(SketchOp, a_part_must_be_inside_and_its_elements_apart) {
  const SketchOp op{SketchKind::Rademacher, 6, 9};
  std::vector<float> data(100);
  const auto run = [&](Index row0, Index col0, const Shape& shape, const Shape& strides,
                       Dtype dtype = Dtype::Float32) {
    return error_of([&] { materialize(op, row0, col0, {data.data(), dtype, shape, strides}); });
  };
  constexpr Index kMost = std::numeric_limits<Index>::max();
  EXPECT_EQ(run(0, 0, {6, 9}, {9, 1}), "no error");
  EXPECT_EQ(run(1, 0, {6, 9}, {9, 1}),
            "[materialize] expected a part of [6, 9], got [6, 9] from [1, 0] on");
  EXPECT_EQ(run(0, kMost, {1, 1}, {1, 1}),
            "[materialize] expected a part of [6, 9], got [1, 1] from [0, 9223372036854775807] on");
  EXPECT_EQ(run(-1, 0, {1, 1}, {1, 1}),
            "[materialize] expected a part of [6, 9], got [1, 1] from [-1, 0] on");
  EXPECT_EQ(run(0, 0, {-1, 1}, {1, 1}), "[materialize] expected sizes >= 0 of out, got [-1, 1]");
  EXPECT_EQ(run(0, 0, {2, 2}, {-2, 1}), "[materialize] expected strides >= 0 of out, got [-2, 1]");
  EXPECT_EQ(run(0, 0, {4}, {1}), "[materialize] expected a matrix out [rows, cols], got [4]");
  EXPECT_EQ(run(0, 0, {2, 2}, {2, 1}, Dtype::Float16),
            "[materialize] expected out in f32 or f64, got f16");
  for (const Shape& strides : {Shape{0, 1}, Shape{1, 1}, Shape{1, 2}, Shape{3, 0}}) {
    EXPECT_EQ(run(0, 0, {3, 4}, strides),
              "[materialize] expected elements of out that share no memory, got shape [3, 4] with "
              "strides " +
                  to_text(strides));
  }
  EXPECT_EQ(run(0, 0, {3, 4}, {kMost / 2, 1}),
            "[materialize] expected out inside the address space, got shape [3, 4] with strides "
            "[4611686018427387903, 1]");
  EXPECT_EQ(error_of([&] {
              materialize(op, 0, 0, {nullptr, Dtype::Float32, {1, 1}});
            }),
            "[materialize] The data of out are null.");
}

}  // namespace
}  // namespace hone::kernels
