// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/sketch/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "tests/kernels/sketch/sketch_support.h"

namespace hone::kernels {
namespace {

using test::error_of;
using test::Matrix;

template <class T>
class Hadamard : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Hadamard, Types);

TYPED_TEST(Hadamard, four_numbers_by_hand) {
  Matrix<TypeParam> x(1, 4);
  x.values = {1, 2, 4, 8};
  fwht_rows(x.view());
  EXPECT_EQ(x.values, (std::vector<TypeParam>{15, -5, -9, 3}));
}

TYPED_TEST(Hadamard, a_unit_vector_becomes_a_row_of_signs) {
  for (const Index n : {1, 2, 16, 64, 512}) {
    Matrix<TypeParam> x(n, n);
    for (Index i = 0; i < n; ++i) {
      for (Index j = 0; j < n; ++j) x(i, j) = i == j;
    }
    fwht_rows(x.view());
    for (Index i = 0; i < n; ++i) {
      for (Index j = 0; j < n; ++j) {
        const auto common = static_cast<std::uint64_t>(i & j);
        ASSERT_EQ(x(i, j), std::popcount(common) % 2 == 0 ? 1 : -1) << i << ", " << j;
      }
    }
  }
}

// Lengths below, at and beyond vectors, pairs of stages and the block of the level-1 cache.
TYPED_TEST(Hadamard, has_the_bits_of_the_textbook_loop_and_leaves_gaps_alone) {
  for (Index n = 1; n <= 65536; n *= 2) {
    for (const Index gap : {0, 3}) {
      Matrix<TypeParam> x(n > 4096 ? 2 : 5, n, false, gap), want = x;
      x.fill(static_cast<std::uint64_t>(n));
      want.values = x.values;
      fwht_rows(x.view());
      fwht_rows_ref(want.view());
      ASSERT_EQ(x.values, want.values) << n << " gap " << gap;
    }
  }
}

TYPED_TEST(Hadamard, twice_is_n_times_the_identity) {
  for (Index n = 1; n <= 16384; n *= 2) {
    Matrix<TypeParam> x(3, n), start = x;
    x.fill_integers(7);
    for (std::size_t i = 0; i < x.values.size(); ++i)
      start.values[i] = static_cast<TypeParam>(n) * x.values[i];
    fwht_rows(x.view());
    fwht_rows(x.view());
    ASSERT_EQ(x.values, start.values) << n;
  }
}

TYPED_TEST(Hadamard, a_panel_transforms_its_columns) {
  constexpr Index kWidth = kHadamardWidth<TypeParam>;
  for (Index length = 1; length <= 8192; length *= 2) {
    Matrix<TypeParam> x(length, kWidth), want(kWidth, length);
    x.fill(3);
    for (Index i = 0; i < length; ++i) {
      for (Index j = 0; j < kWidth; ++j) want(j, i) = x(i, j);
    }
    hadamard_panel(x.values.data(), length, kWidth);
    fwht_rows_ref(want.view());
    for (Index i = 0; i < length; ++i) {
      for (Index j = 0; j < kWidth; ++j) ASSERT_EQ(x(i, j), want(j, i)) << length;
    }
  }
}

TYPED_TEST(Hadamard, threads_do_not_change_bits) {
  Matrix<TypeParam> start(301, 256);
  start.fill(9);
  Matrix<TypeParam> want = start;
  fwht_rows(want.view());
  for (const int threads : {2, 4, 7}) {
    ThreadPool pool(threads);
    Matrix<TypeParam> x = start;
    fwht_rows(x.view(), pool);
    EXPECT_EQ(x.values, want.values) << threads;
  }
}

TEST(HadamardErrors, say_what_is_expected) {
  std::vector<float> data(64);
  const auto run = [&](const Shape& shape, const Shape& strides, Dtype dtype = Dtype::Float32) {
    return error_of([&] { fwht_rows({data.data(), dtype, shape, strides}); });
  };
  EXPECT_EQ(run({2, 12}, {12, 1}), "[fwht_rows] expected a power of two of columns, got 12");
  EXPECT_EQ(run({2, 0}, {0, 1}), "[fwht_rows] expected a power of two of columns, got 0");
  EXPECT_EQ(run({2, -4}, {4, 1}), "[fwht_rows] expected a power of two of columns, got -4");
  EXPECT_EQ(run({-2, 4}, {4, 1}), "[fwht_rows] expected rows >= 0, got -2");
  EXPECT_EQ(run({16}, {1}), "[fwht_rows] expected x [rows, n], got [16]");
  EXPECT_EQ(run({2, 8}, {1, 2}),
            "[fwht_rows] expected adjacent columns and rows that are at least 8 apart, got strides "
            "[1, 2]");
  EXPECT_EQ(run({2, 8}, {4, 1}),
            "[fwht_rows] expected adjacent columns and rows that are at least 8 apart, got strides "
            "[4, 1]");
  EXPECT_EQ(run({2, 8}, {8, 1}, Dtype::BFloat16), "[fwht_rows] expected x in f32 or f64, got bf16");
  EXPECT_EQ(error_of([] {
              fwht_rows({nullptr, Dtype::Float32, {1, 8}});
            }),
            "[fwht_rows] The data of x are null.");
  EXPECT_EQ(error_of([] { fwht_rows({nullptr, Dtype::Float32, {0, 8}}); }), "no error");
}

}  // namespace
}  // namespace hone::kernels
