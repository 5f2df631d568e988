// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/product/product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "hone/core/thread/thread_pool.h"
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

// Around six rows, the panels of every vector length, and the depth that is added at once; fewer
// than four rows are added to the result one after the other, in several tasks where it is long.
constexpr Shape kShapes[] = {{1, 1, 1},      {6, 7, 8},     {7, 33, 15},   {5, 256, 16},
                             {13, 257, 17},  {16, 100, 31}, {48, 300, 32}, {3, 520, 33},
                             {97, 64, 67},   {20, 40, 300}, {200, 3, 530}, {1, 9, 1100},
                             {2, 131, 1030}, {3, 66, 2100}};
// Around four rows, two vectors of every length, and several tasks.
constexpr Shape kFewColumns[] = {{1, 1, 1},   {4, 31, 2},  {5, 64, 3},    {37, 133, 1},
                                 {90, 32, 2}, {43, 7, 20}, {70, 1100, 3}, {9, 0, 1}};

Strided<const float> matrix_of(const FloatMatrix& m) {
  return {m.values.data(), m.rows, m.cols, m.row_stride, m.col_stride};
}
Strided<float> matrix_of(FloatMatrix& m) {
  return {m.values.data(), m.rows, m.cols, m.row_stride, m.col_stride};
}

FloatMatrix multiplied(FloatMatrix& a, FloatMatrix& b, const std::vector<float>& bias = {},
                       Executor& executor = serial_executor(),
                       decltype(multiply)& kernel = multiply) {
  FloatMatrix out(a.rows, b.cols);
  const FloatMatrix &from_a = a, &from_b = b;
  kernel(
      {matrix_of(from_a), matrix_of(from_b), bias.empty() ? nullptr : bias.data(), matrix_of(out)},
      executor);
  return out;
}

void expect_sums_in_double(FloatMatrix& a, FloatMatrix& b, const std::vector<float>& bias,
                           FloatMatrix& out, const std::string& what) {
  for (Index i = 0; i < out.rows; ++i) {
    for (Index j = 0; j < out.cols; ++j) {
      double sum = bias[static_cast<std::size_t>(j)], size = std::abs(sum);
      for (Index k = 0; k < a.cols; ++k) {
        const double term = static_cast<double>(a(i, k)) * static_cast<double>(b(k, j));
        sum += term, size += std::abs(term);
      }
      // Every addition rounds once, by half a unit of at most the sum of the magnitudes.
      const double bound = 0.5 * kEpsilon * static_cast<double>(2 * a.cols + 1) * size;
      ASSERT_NEAR(out(i, j), sum, bound) << what << " at " << i << ", " << j;
    }
  }
}

// Puts NaN into one row of a and infinity into one column of b, and expects them there alone.
void expect_not_finite_in_place(FloatMatrix& a, FloatMatrix& b, Index row, Index col) {
  a.fill(11), b.fill(12);
  a(row, a.cols - 1) = kNan, b(3, col) = kInfinity;
  FloatMatrix out = multiplied(a, b);
  for (Index i = 0; i < out.rows; ++i) {
    for (Index j = 0; j < out.cols; ++j) {
      EXPECT_EQ(std::isfinite(out(i, j)), i != row && j != col) << i << ", " << j;
      EXPECT_EQ(std::isnan(out(i, j)), i == row) << i << ", " << j;
    }
  }
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
      expect_sums_in_double(a, b, bias, out, shape.text());
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

// Products of powers of two are exact, so that only the sums round, with and without fused
// multiply-add: another order of the sums would have other bits.
TEST(Product, AddsToTheBiasInAscendingOrder) {
  for (const Shape& shape : kShapes) {
    for_layouts([&](bool a_by_columns, bool b_by_columns) {
      FloatMatrix a(shape.rows, shape.depth, a_by_columns),
          b(shape.depth, shape.cols, b_by_columns);
      a.fill(25), b.fill(26);
      const auto round_down = [](float value) {
        int exponent = 0;
        const float fraction = std::frexp(value, &exponent);
        return fraction == 0 ? 0 : std::copysign(std::ldexp(1.0F, exponent), value);
      };
      for (float& value : a.values) value = round_down(value);
      for (float& value : b.values) value = round_down(value);
      const std::vector<float> bias = random_values(shape.cols, 27);
      FloatMatrix want(shape.rows, shape.cols), got = multiplied(a, b, bias);
      for (Index i = 0; i < shape.rows; ++i) {
        for (Index j = 0; j < shape.cols; ++j) {
          want(i, j) = bias[static_cast<std::size_t>(j)];
          for (Index k = 0; k < shape.depth; ++k) want(i, j) += a(i, k) * b(k, j);
        }
      }
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
    expect_not_finite_in_place(a, b, 4, 36);
    FloatMatrix few(3, 21, a_by_columns), wide(21, 1100, b_by_columns);
    expect_not_finite_in_place(few, wide, 1, 1099);
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

TEST(ProductOfFewColumns, EqualsTheSumsInDouble) {
  for (const Shape& shape : kFewColumns) {
    FloatMatrix a(shape.rows, shape.depth, false, 3), b(shape.depth, shape.cols, true, 5);
    a.fill(16), b.fill(17);
    const std::vector<float> bias = random_values(shape.cols, 18);
    FloatMatrix out = multiplied(a, b, bias, serial_executor(), multiply_columns);
    expect_sums_in_double(a, b, bias, out, shape.text());
  }
}

TEST(ProductOfFewColumns, OfWholeNumbersEqualsTheProductOfAnyLayout) {
  for (const Shape& shape : kFewColumns) {
    FloatMatrix a(shape.rows, shape.depth, false, 2), b(shape.depth, shape.cols, true, 1);
    a.fill_integers(30), b.fill_integers(31);
    const std::vector<float> bias = random_integers(shape.cols, 32, 5);
    FloatMatrix want = multiplied(a, b, bias);
    FloatMatrix got = multiplied(a, b, bias, serial_executor(), multiply_columns);
    test::expect_same(got, want, shape.text());
  }
}

TEST(ProductOfFewColumns, ScalesByPowersOfTwoExactly) {
  for (const Shape& shape : kFewColumns) {
    FloatMatrix a(shape.rows, shape.depth), b(shape.depth, shape.cols, true);
    a.fill(33), b.fill(34);
    FloatMatrix want = multiplied(a, b, {}, serial_executor(), multiply_columns);
    for (float& value : a.values) value *= 64;
    for (float& value : b.values) value /= 16;
    for (float& value : want.values) value *= 4;
    FloatMatrix got = multiplied(a, b, {}, serial_executor(), multiply_columns);
    test::expect_same(got, want, shape.text());
  }
}

TEST(ProductOfFewColumns, HasTheSameBitsForEveryNumberOfThreads) {
  ThreadPool pool(3);
  for (const Shape& shape : kFewColumns) {
    FloatMatrix a(shape.rows, shape.depth), b(shape.depth, shape.cols, true);
    a.fill(19), b.fill(20);
    FloatMatrix want = multiplied(a, b, {}, serial_executor(), multiply_columns);
    FloatMatrix got = multiplied(a, b, {}, pool, multiply_columns);
    test::expect_same(got, want, shape.text());
  }
}

TEST(ProductOfFewColumns, OfARowAndAColumnDoesNotDependOnTheOthers) {
  FloatMatrix a(11, 99), b(99, 3, true);
  a.fill(21), b.fill(22);
  FloatMatrix all = multiplied(a, b, {}, serial_executor(), multiply_columns);
  for (const Index row : {0, 5, 10}) {
    for (Index col = 0; col < 3; ++col) {
      FloatMatrix one_a(1, 99), one_b(99, 1, true);
      for (Index k = 0; k < 99; ++k) one_a(0, k) = a(row, k), one_b(k, 0) = b(k, col);
      FloatMatrix one = multiplied(one_a, one_b, {}, serial_executor(), multiply_columns);
      ASSERT_EQ(one(0, 0), all(row, col)) << row << ", " << col;
    }
  }
}

TEST(ProductOfFewColumns, ReadsNothingBehindItsOperandsAndKeepsNan) {
  for (const Shape& shape : kFewColumns) {
    GuardedFloats a(random_integers(shape.rows * shape.depth, 23, 3));
    GuardedFloats b(random_integers(shape.depth * shape.cols, 24, 3));
    FloatMatrix out(shape.rows, shape.cols, false, 4);
    const bool has_depth = shape.depth > 0;
    if (has_depth) a.data()[shape.depth - 1] = kNan;
    multiply_columns({{a.data(), shape.rows, shape.depth, shape.depth, 1},
                      {b.data(), shape.depth, shape.cols, 1, shape.depth},
                      nullptr,
                      matrix_of(out)},
                     serial_executor());
    for (Index i = 0; i < shape.rows; ++i) {
      for (Index j = 0; j < shape.cols; ++j) {
        ASSERT_EQ(std::isnan(out(i, j)), has_depth && i == 0) << shape.text();
      }
    }
  }
}

TEST(ProductOfFewColumns, WithoutRowsOrColumnsWritesNothing) {
  FloatMatrix none(0, 5), b(5, 2, true), narrow(5, 0, true), some(4, 5);
  const auto written = [](FloatMatrix& a, FloatMatrix& columns) {
    return multiplied(a, columns, {}, serial_executor(), multiply_columns).values.size();
  };
  EXPECT_EQ(written(none, b), 0U);
  EXPECT_EQ(written(some, narrow), 0U);
}

TEST(ProductOfFewColumns, NamesStridesThatDoNotFit) {
  float values[64] = {};
  const Strided<float> out{values, 2, 1, 1, 1};
  const auto error = [&](const ProductArgs& args) {
    return error_of([&] { multiply_columns(args, serial_executor()); });
  };
  EXPECT_NE(
      error({{values, 2, 3, 1, 2}, {values, 3, 1, 1, 3}, nullptr, out})
          .find("a with contiguous rows and b with contiguous columns, got strides of 2 and 1"),
      std::string::npos);
  EXPECT_NE(error({{values, 2, 3, 3, 1}, {values, 3, 1, 2, 1}, nullptr, out})
                .find("got strides of 1 and 2"),
            std::string::npos);
  EXPECT_NE(error({{values, 2, 3, 3, 1}, {values, 4, 1, 1, 4}, nullptr, out}).find("as many rows"),
            std::string::npos);
}

}  // namespace
}  // namespace hone::kernels
