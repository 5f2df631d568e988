// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/product/product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "hone/core/thread_pool.h"
#include "tests/kernels/sketch/sketch_support.h"

namespace hone::kernels {
namespace {

using test::error_of;
using test::GuardedFloats;
using test::kEpsilon;
using test::kInfinity;
using test::kNan;
using test::random_integers;
using test::random_values;
using FloatMatrix = test::Matrix<float>;

struct Shape {
  Index rows, depth, cols;
  std::string text() const { return concat(rows, " x ", depth, " x ", cols); }
};

// Around six rows, the panels of every vector length, and the depth that is added at once.
constexpr Shape kShapes[] = {{1, 1, 1},     {6, 7, 8},     {7, 33, 15},   {5, 256, 16},
                             {13, 257, 17}, {16, 100, 31}, {48, 300, 32}, {3, 520, 33},
                             {97, 64, 67},  {20, 40, 300}, {200, 3, 530}};

Strided<const float> matrix_of(const FloatMatrix& m) {
  return {m.values.data(), m.rows, m.cols, m.row_stride, m.col_stride};
}
Strided<float> matrix_of(FloatMatrix& m) {
  return {m.values.data(), m.rows, m.cols, m.row_stride, m.col_stride};
}

FloatMatrix multiplied(FloatMatrix& a, FloatMatrix& b, const std::vector<float>& bias = {},
                       Executor& executor = serial_executor(), Index gap = 0) {
  FloatMatrix out(a.rows, b.cols, false, gap);
  const FloatMatrix &from_a = a, &from_b = b;
  multiply(
      {matrix_of(from_a), matrix_of(from_b), bias.empty() ? nullptr : bias.data(), matrix_of(out)},
      executor);
  return out;
}

// Calls check(a by columns, b by columns) for all four layouts.
template <class Check>
void for_layouts(const Check& check) {
  for (const bool a_by_columns : {false, true}) {
    for (const bool b_by_columns : {false, true}) check(a_by_columns, b_by_columns);
  }
}

TEST(Product, EqualsTheSumsInDouble) {
  for (const Shape& shape : kShapes) {
    for_layouts([&](bool a_by_columns, bool b_by_columns) {
      FloatMatrix a(shape.rows, shape.depth, a_by_columns, 3);
      FloatMatrix b(shape.depth, shape.cols, b_by_columns, 5);
      a.fill(1), b.fill(2);
      const std::vector<float> bias = random_values(shape.cols, 3);
      FloatMatrix out = multiplied(a, b, bias);
      for (Index i = 0; i < shape.rows; ++i) {
        for (Index j = 0; j < shape.cols; ++j) {
          double sum = bias[static_cast<std::size_t>(j)], size = std::abs(sum);
          for (Index k = 0; k < shape.depth; ++k) {
            const double term = static_cast<double>(a(i, k)) * static_cast<double>(b(k, j));
            sum += term, size += std::abs(term);
          }
          // Every addition rounds once, by half a unit of at most the sum of the magnitudes.
          const double bound = 0.5 * kEpsilon * static_cast<double>(2 * shape.depth + 1) * size;
          ASSERT_NEAR(out(i, j), sum, bound) << shape.text() << " at " << i << ", " << j;
        }
      }
    });
  }
}

TEST(Product, OfWholeNumbersIsExactInEveryLayout) {
  for (const Shape& shape : kShapes) {
    for_layouts([&](bool a_by_columns, bool b_by_columns) {
      FloatMatrix a(shape.rows, shape.depth, a_by_columns, 1);
      FloatMatrix b(shape.depth, shape.cols, b_by_columns);
      a.fill_integers(4), b.fill_integers(5);
      FloatMatrix want(shape.rows, shape.cols);
      for (Index i = 0; i < shape.rows; ++i) {
        for (Index j = 0; j < shape.cols; ++j) {
          want(i, j) = 0;
          for (Index k = 0; k < shape.depth; ++k) want(i, j) += a(i, k) * b(k, j);
        }
      }
      FloatMatrix got = multiplied(a, b);
      test::expect_same(got, want, shape.text());
    });
  }
}

TEST(Product, HasTheSameBitsForEveryNumberOfThreadsAndEveryLayout) {
  ThreadPool pool(3);
  for (const Shape& shape : kShapes) {
    FloatMatrix a(shape.rows, shape.depth), b(shape.depth, shape.cols);
    a.fill(6), b.fill(7);
    FloatMatrix want = multiplied(a, b);
    for_layouts([&](bool a_by_columns, bool b_by_columns) {
      FloatMatrix same_a(shape.rows, shape.depth, a_by_columns);
      FloatMatrix same_b(shape.depth, shape.cols, b_by_columns);
      for (Index k = 0; k < shape.depth; ++k) {
        for (Index i = 0; i < shape.rows; ++i) same_a(i, k) = a(i, k);
        for (Index j = 0; j < shape.cols; ++j) same_b(k, j) = b(k, j);
      }
      FloatMatrix got = multiplied(same_a, same_b, {}, pool);
      test::expect_same(got, want, shape.text());
    });
  }
}

TEST(Product, OfARowDoesNotDependOnTheOtherRows) {
  FloatMatrix a(40, 300), b(300, 70);
  a.fill(8), b.fill(9);
  FloatMatrix all = multiplied(a, b);
  for (const Index row : {0, 7, 39}) {
    FloatMatrix one(1, 300);
    for (Index k = 0; k < 300; ++k) one(0, k) = a(row, k);
    FloatMatrix got = multiplied(one, b);
    for (Index j = 0; j < 70; ++j) ASSERT_EQ(got(0, j), all(row, j)) << row << ", " << j;
  }
}

TEST(Product, WithoutDepthIsTheBias) {
  FloatMatrix a(9, 0), b(0, 40);
  const std::vector<float> bias = random_values(40, 10);
  FloatMatrix out = multiplied(a, b, bias), zeros = multiplied(a, b);
  for (Index i = 0; i < 9; ++i) {
    for (Index j = 0; j < 40; ++j) {
      EXPECT_EQ(out(i, j), bias[static_cast<std::size_t>(j)]);
      EXPECT_EQ(zeros(i, j), 0);
    }
  }
}

TEST(Product, KeepsValuesThatAreNotFiniteInTheirRowsAndColumns) {
  for_layouts([](bool a_by_columns, bool b_by_columns) {
    FloatMatrix a(10, 20, a_by_columns), b(20, 37, b_by_columns);
    a.fill(11), b.fill(12);
    a(4, 7) = kNan, b(3, 36) = kInfinity;
    FloatMatrix out = multiplied(a, b);
    for (Index i = 0; i < 10; ++i) {
      for (Index j = 0; j < 37; ++j) {
        EXPECT_EQ(std::isfinite(out(i, j)), i != 4 && j != 36) << i << ", " << j;
        EXPECT_EQ(std::isnan(out(i, j)), i == 4) << i << ", " << j;
      }
    }
  });
}

TEST(Product, ReadsNothingBehindItsOperandsAndWritesNothingBetweenRows) {
  for (const Shape& shape : kShapes) {
    for (const bool b_by_columns : {false, true}) {
      GuardedFloats a(random_integers(shape.rows * shape.depth, 13, 3));
      GuardedFloats b(random_integers(shape.depth * shape.cols, 14, 3));
      GuardedFloats bias(random_integers(shape.cols, 15, 3));
      FloatMatrix out(shape.rows, shape.cols, false, 4);
      const Strided<const float> by_rows{b.data(), shape.depth, shape.cols, shape.cols, 1};
      const Strided<const float> by_columns{b.data(), shape.depth, shape.cols, 1, shape.depth};
      multiply({{a.data(), shape.rows, shape.depth, shape.depth, 1},
                b_by_columns ? by_columns : by_rows,
                bias.data(),
                matrix_of(out)},
               serial_executor());
      for (Index i = 0; i + 1 < shape.rows; ++i) {
        for (Index j = shape.cols; j < out.row_stride; ++j) {
          ASSERT_EQ(out.values[static_cast<std::size_t>(i * out.row_stride + j)], -77);
        }
      }
    }
  }
}

TEST(Product, WithoutRowsOrColumnsWritesNothing) {
  FloatMatrix a(0, 5), b(5, 6), narrow(5, 0), some(4, 5);
  EXPECT_TRUE(multiplied(a, b).values.empty());
  EXPECT_TRUE(multiplied(some, narrow).values.empty());
}

TEST(Product, NamesSizesAndStridesThatDoNotFit) {
  float values[64] = {};
  const Strided<const float> a{values, 2, 3, 3, 1}, b{values, 3, 4, 4, 1};
  const Strided<float> out{values, 2, 4, 4, 1};
  const auto error = [&](const ProductArgs& args) {
    return error_of([&] { multiply(args, serial_executor()); });
  };
  const auto expect_says = [&](const ProductArgs& args, const char* text) {
    EXPECT_NE(error(args).find(text), std::string::npos) << error(args);
  };
  expect_says({a, {values, 2, 4, 4, 1}, nullptr, out}, "as many rows");
  expect_says({a, b, nullptr, {values, 2, 3, 3, 1}}, "out [2, 4]");
  expect_says({a, {values, 3, 4, 8, 2}, nullptr, out}, "contiguous rows or columns");
  expect_says({a, b, nullptr, {values, 2, 4, 1, 2}}, "out with contiguous rows");
  expect_says({a, b, nullptr, {values, 2, 4, 3, 1}}, "out with contiguous rows");
}

}  // namespace
}  // namespace hone::kernels
