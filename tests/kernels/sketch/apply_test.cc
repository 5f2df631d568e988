// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/sketch/apply.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

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

constexpr Transpose kBoth[] = {Transpose::No, Transpose::Yes};

// One way to apply an operator to a matrix that has `width` columns, from the right rows.
struct Way {
  SketchOp op;
  bool is_left = true;
  Transpose transpose = Transpose::No;

  Index inner() const { return (transpose == Transpose::Yes) == is_left ? op.rows : op.cols; }
  Index result() const { return op.rows + op.cols - inner(); }
  template <class T>
  Matrix<T> make_a(Index width, bool by_columns = false, Index gap = 0) const {
    return is_left ? Matrix<T>(inner(), width, by_columns, gap)
                   : Matrix<T>(width, inner(), by_columns, gap);
  }
  template <class T>
  Matrix<T> make_out(Index width, bool by_columns = false, Index gap = 0) const {
    return is_left ? Matrix<T>(result(), width, by_columns, gap)
                   : Matrix<T>(width, result(), by_columns, gap);
  }
  template <class T>
  void run(Matrix<T>& a, Matrix<T>& out, Executor& executor = serial_executor()) const {
    if (is_left) {
      apply_left(op, transpose, a.view(), out.view(), executor);
    } else {
      apply_right(op, transpose, a.view(), out.view(), executor);
    }
  }
  // By the matrix S: sum_of() gets the terms, pairs of entries of S and A, and their count.
  template <class T, class Sum>
  void define(Matrix<double>& s, Matrix<T>& a, Matrix<T>& out, const Sum& sum_of) const {
    const bool inner_is_row = (transpose == Transpose::Yes) == is_left;
    const Index width = is_left ? a.cols : a.rows;
    for (Index r = 0; r < result(); ++r) {
      for (Index w = 0; w < width; ++w) {
        const auto terms = [&](Index k) {
          const double entry = inner_is_row ? s(k, r) : s(r, k);
          return std::pair<double, T>(entry, is_left ? a(k, w) : a(w, k));
        };
        (is_left ? out(r, w) : out(w, r)) = sum_of(terms, inner());
      }
    }
  }
  std::string text() const {
    return text_of(op) + (is_left ? " left" : " right") +
           (transpose == Transpose::Yes ? " transposed" : "");
  }
};

std::vector<Way> all_ways(Index rows, Index cols, bool scaled = true) {
  std::vector<Way> ways;
  for (SketchOp op : all_ops(rows, cols)) {
    op.scaled = scaled;
    for (const bool is_left : {true, false}) {
      for (const Transpose transpose : kBoth) ways.push_back({op, is_left, transpose});
    }
  }
  return ways;
}

template <class T>
T sum_terms(const std::function<std::pair<double, T>(Index)>& terms, Index count) {
  double sum = 0;
  for (Index k = 0; k < count; ++k) sum += terms(k).first * static_cast<double>(terms(k).second);
  return static_cast<T>(sum);
}

template <class T>
class ApplySketch : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ApplySketch, Types);

constexpr std::pair<Index, Index> kShapes[] = {{1, 1},    {1, 9},    {9, 1},  {3, 5},
                                               {5, 3},    {7, 33},   {33, 7}, {12, 12},
                                               {13, 300}, {300, 13}, {50, 64}};
constexpr Index kWidths[] = {1, 2, 16, 17, 37, 150};

TYPED_TEST(ApplySketch, equals_the_product_with_the_materialized_matrix) {
  using T = TypeParam;
  for (const auto& [rows, cols] : kShapes) {
    for (const Way& way : all_ways(rows, cols)) {
      Matrix<double> s = matrix_of(way.op);
      for (const Index width : kWidths) {
        Matrix<T> a = way.make_a<T>(width), want = way.make_out<T>(width);
        a.fill(static_cast<std::uint64_t>(width));
        way.define(s, a, want, sum_terms<T>);
        // Each sum has inner() terms of about 1/sqrt(rows) times numbers below 1.
        const double epsilon = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
        const double tolerance = 32 * epsilon * std::sqrt(static_cast<double>(rows + cols));
        for (const bool by_columns : {false, true}) {
          Matrix<T> other = way.make_a<T>(width, by_columns, 3);
          Matrix<T> out = way.make_out<T>(width, !by_columns, 2);
          const auto count_gaps = [&] {
            return std::count(out.values.begin(), out.values.end(), T{-77});
          };
          for (Index i = 0; i < a.rows; ++i) {
            for (Index j = 0; j < a.cols; ++j) other(i, j) = a(i, j);
          }
          way.run(other, out);
          EXPECT_EQ(count_gaps(), 2 * (by_columns ? out.rows : out.cols)) << way.text();
          for (Index i = 0; i < out.rows; ++i) {
            for (Index j = 0; j < out.cols; ++j)
              ASSERT_NEAR(out(i, j), want(i, j), tolerance)
                  << way.text() << " width " << width << " at " << i << ", " << j;
          }
        }
      }
    }
  }
}

// Signs times whole numbers: no sum rounds.
TYPED_TEST(ApplySketch, sums_of_signed_whole_numbers_are_exact) {
  using T = TypeParam;
  for (const auto& [rows, cols] : {std::pair<Index, Index>{20, 64}, {64, 20}, {16, 16}}) {
    for (const Way& way : all_ways(rows, cols, false)) {
      if (way.op.kind == SketchKind::Gaussian) continue;
      Matrix<double> s = matrix_of(way.op);
      Matrix<T> a = way.make_a<T>(45), want = way.make_out<T>(45), got = want;
      a.fill_integers(4);
      way.define(s, a, want, sum_terms<T>);
      way.run(a, got);
      expect_same(got, want, way.text());
    }
  }
}

// Rounding shows the order.
TYPED_TEST(ApplySketch, scattered_sums_run_in_ascending_order) {
  using T = TypeParam;
  for (const SketchKind kind : {SketchKind::CountSketch, SketchKind::Sjlt}) {
    const Way way{{kind, 8, 500, 11, 2, kind == SketchKind::Sjlt ? 2 : 1}};
    Matrix<double> s = matrix_of(way.op);
    Matrix<T> a = way.make_a<T>(40), want = way.make_out<T>(40), got = want;
    a.fill(6);
    const auto scale = static_cast<T>(isometry_scale(way.op));
    way.define(s, a, want, [&](const auto& terms, Index count) {
      T sum = 0;
      for (Index k = 0; k < count; ++k) {
        const auto [entry, value] = terms(k);
        if (entry != 0) sum += entry < 0 ? -value : value;
      }
      return sum * scale;
    });
    way.run(a, got);
    expect_same(got, want, way.text());
  }
}

// <S x, y> = <x, S^T y>
TEST(ApplySketchOracle, the_transpose_is_the_adjoint) {
  for (const auto& [rows, cols] : {std::pair<Index, Index>{40, 333}, {333, 40}}) {
    for (const SketchOp& op : all_ops(rows, cols)) {
      Matrix<double> x(cols, 1), y(rows, 1), sx(rows, 1), sty(cols, 1);
      x.fill(1), y.fill(2);
      apply_left(op, Transpose::No, x.view(), sx.view());
      apply_left(op, Transpose::Yes, y.view(), sty.view());
      double left = 0, right = 0, size = 0;
      for (Index i = 0; i < rows; ++i) left += sx(i, 0) * y(i, 0), size += std::abs(sx(i, 0));
      for (Index j = 0; j < cols; ++j) right += x(j, 0) * sty(j, 0);
      EXPECT_NEAR(left, right, 1e-13 * size) << text_of(op);
    }
  }
}

TYPED_TEST(ApplySketch, neither_threads_nor_layout_nor_neighbors_change_bits) {
  using T = TypeParam;
  for (const auto& [rows, cols] : {std::pair<Index, Index>{61, 601}, {290, 53}}) {
    for (const Way& way : all_ways(rows, cols)) {
      const Index width = 140;
      Matrix<T> a = way.make_a<T>(width), want = way.make_out<T>(width);
      a.fill(8);
      way.run(a, want);
      Matrix<T> turned = way.make_a<T>(width, true, 1);
      for (Index i = 0; i < a.rows; ++i) {
        for (Index j = 0; j < a.cols; ++j) turned(i, j) = a(i, j);
      }
      for (const int threads : {1, 2, 4, 7}) {
        ThreadPool pool(threads);
        Matrix<T> got = way.make_out<T>(width), from_turned = way.make_out<T>(width, true, 1);
        way.run(a, got, pool);
        way.run(turned, from_turned, pool);
        expect_same(got, want, way.text() + " threads " + std::to_string(threads));
        expect_same(from_turned, want, way.text() + " by columns");
      }
      Matrix<T> alone = way.make_a<T>(1), one = way.make_out<T>(1);
      for (Index k = 0; k < way.inner(); ++k)
        (way.is_left ? alone(k, 0) : alone(0, k)) = way.is_left ? a(k, 99) : a(99, k);
      way.run(alone, one);
      for (Index r = 0; r < way.result(); ++r)
        ASSERT_EQ(way.is_left ? one(r, 0) : one(0, r), way.is_left ? want(r, 99) : want(99, r))
            << way.text();
    }
  }
}

// More entries than are drawn at once.
TEST(ApplySketchOracle, sums_over_many_vectors) {
  const SketchOp op{SketchKind::Sjlt, 50, 70001, 3, 0, 4, false};
  std::vector<std::int64_t> want(50);
  Matrix<float> a(op.cols, 2), out(op.rows, 2), back(op.cols, 2);
  a.fill_integers(12);
  Matrix<float> part(op.rows, 1);
  for (Index j = 0; j < op.cols; ++j) {
    materialize(op, 0, j, part.view());
    for (Index i = 0; i < op.rows; ++i)
      want[static_cast<std::size_t>(i)] += static_cast<std::int64_t>(part(i, 0) * a(j, 1));
  }
  apply_left(op, Transpose::No, a.view(), out.view());
  for (Index i = 0; i < op.rows; ++i) EXPECT_EQ(out(i, 1), want[static_cast<std::size_t>(i)]);
  apply_left(op, Transpose::Yes, out.view(), back.view());
  for (const Index j : {Index{0}, Index{65535}, Index{65536}, Index{70000}}) {
    materialize(op, 0, j, part.view());
    float sum = 0;
    for (Index i = 0; i < op.rows; ++i) sum += part(i, 0) * out(i, 1);
    EXPECT_EQ(back(j, 1), sum) << j;
  }
}

TEST(ApplySketchOracle, an_expanded_matrix_has_equal_columns) {
  for (const SketchOp& op : all_ops(9, 70)) {
    Matrix<float> x(70, 1), want(9, 1), got(9, 33);
    x.fill(3);
    apply_left(op, Transpose::No, x.view(), want.view());
    apply_left(op, Transpose::No, {x.values.data(), Dtype::Float32, {70, 33}, {1, 0}}, got.view());
    for (Index i = 0; i < 9; ++i) {
      for (Index j = 0; j < 33; ++j) ASSERT_EQ(got(i, j), want(i, 0)) << text_of(op);
    }
  }
}

TEST(ApplySketchErrors, say_what_is_expected) {
  const SketchOp op{SketchKind::CountSketch, 4, 6};
  std::vector<float> data(200);
  const auto run = [&](const Shape& a, const Shape& out, bool is_left = true,
                       Transpose transpose = Transpose::No) {
    return error_of([&] {
      const ConstTensorView from{data.data(), Dtype::Float32, a};
      const TensorView to{data.data() + 100, Dtype::Float32, out};
      is_left ? apply_left(op, transpose, from, to) : apply_right(op, transpose, from, to);
    });
  };
  EXPECT_EQ(run({6, 3}, {4, 3}), "no error");
  EXPECT_EQ(run({4, 3}, {6, 3}, true, Transpose::Yes), "no error");
  EXPECT_EQ(run({3, 4}, {3, 6}, false), "no error");
  EXPECT_EQ(run({3, 6}, {3, 4}, false, Transpose::Yes), "no error");
  EXPECT_EQ(run({6, 0}, {4, 0}), "no error");
  EXPECT_EQ(run({5, 3}, {4, 3}), "[apply_left] expected A of shape [6, 3], got [5, 3]");
  EXPECT_EQ(run({6, 3}, {6, 3}), "[apply_left] expected out of shape [4, 3], got [6, 3]");
  EXPECT_EQ(run({6, 3}, {4, 2}), "[apply_left] expected out of shape [4, 3], got [4, 2]");
  EXPECT_EQ(run({3, 6}, {3, 6}, false), "[apply_right] expected A of shape [3, 4], got [3, 6]");
  EXPECT_EQ(run({6}, {4}), "[apply_left] expected a matrix A [rows, cols], got [6]");
  EXPECT_EQ(run({6, -3}, {4, -3}), "[apply_left] expected sizes >= 0 of A, got [6, -3]");
}

TEST(ApplySketchErrors, types_and_memory_must_not_mix) {
  const SketchOp op{SketchKind::Gaussian, 4, 6};
  std::vector<double> data(100);
  const auto run = [&](const ConstTensorView& a, const TensorView& out) {
    return error_of([&] { apply_left(op, Transpose::No, a, out); });
  };
  const TensorView a{data.data(), Dtype::Float64, {6, 3}};
  EXPECT_EQ(run(a, {data.data() + 50, Dtype::Float32, {4, 3}}),
            "[apply_left] expected out in f64, as A, got f32");
  EXPECT_EQ(run({data.data(), Dtype::BFloat16, {6, 3}}, a),
            "[apply_left] expected A in f32 or f64, got bf16");
  for (const Index offset : {0, 5, 17})
    EXPECT_EQ(run(a, {data.data() + offset, Dtype::Float64, {4, 3}}),
              "[apply_left] A and out share memory.");
  EXPECT_EQ(run(a, {data.data() + 18, Dtype::Float64, {4, 3}}), "no error");
  EXPECT_EQ(run(a, {data.data() + 50, Dtype::Float64, {4, 3}, {1, 1}}),
            "[apply_left] expected elements of out that share no memory, got shape [4, 3] with "
            "strides [1, 1]");
  EXPECT_EQ(run({nullptr, Dtype::Float64, {6, 3}}, {data.data(), Dtype::Float64, {4, 3}}),
            "[apply_left] The data of A are null.");
  EXPECT_EQ(error_of([&] { apply_left({SketchKind::Gaussian}, Transpose::No, a, a); }),
            "[apply_left] expected rows and cols of 1 to 1073741824, got [0, 0]");
}

}  // namespace
}  // namespace hone::kernels
