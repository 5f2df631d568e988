// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "hone/core/error.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/gemm/packed_rows.h"
#include "tests/kernels/gemm/weight_support.h"

namespace hone::kernels {
namespace {

std::vector<float> unpack(const PackedRows& rows, Index row) {
  std::vector<float> out(static_cast<std::size_t>(rows.cols()));
  rows.unpack_row(row, out);
  return out;
}

TEST(PackedRows, interleaving_keeps_every_value) {
  PackedRows packed;
  for (const Index rows : {1, 2, 3, 4, 5, 33}) {
    for (const Index cols : {1, 7, 16, 65, 129}) {
      const Index stride = cols + 3;
      const auto x = test::random_floats(rows * stride, 3);
      interleave_rows(x.data(), rows, cols, stride, packed, serial_executor());
      for (Index row = 0; row < rows; ++row) {
        const auto got = unpack(packed, row);
        ASSERT_EQ(std::memcmp(got.data(), x.data() + row * stride, got.size() * 4), 0)
            << rows << "x" << cols << " row " << row;
      }
    }
  }
}

// scale = absmax / 127, code = rne(x * (127 / absmax)), per block of 32.
TEST(PackedRows, quantizes_as_defined) {
  PackedRows packed;
  const Index rows = 5, cols = 100;
  const auto x = test::random_floats(rows * cols, 4, 3.0f);
  quantize_rows(x.data(), rows, cols, cols, packed, serial_executor());
  for (Index row = 0; row < rows; ++row) {
    const auto got = unpack(packed, row);
    for (Index begin = 0; begin < cols; begin += 32) {
      const float* block = x.data() + row * cols + begin;
      const Index count = std::min<Index>(32, cols - begin);
      float largest = 0;
      for (Index i = 0; i < count; ++i) largest = std::max(largest, std::fabs(block[i]));
      const float scale = largest / 127.0f;
      for (Index i = 0; i < count; ++i) {
        const float code = std::nearbyint(block[i] * (127.0f / largest));
        ASSERT_EQ(got[static_cast<std::size_t>(begin + i)], scale * code)
            << row << " " << begin + i;
        ASSERT_LE(std::fabs(scale * code - block[i]), 0.5001f * scale);
      }
    }
  }
}

TEST(PackedRows, a_row_quantizes_the_same_alone_and_in_a_batch) {
  const Index rows = 23, cols = 96;
  const auto x = test::random_floats(rows * cols, 5);
  PackedRows batch, alone;
  ThreadPool pool(3);
  quantize_rows(x.data(), rows, cols, cols, batch, pool);
  for (Index row = 0; row < rows; ++row) {
    quantize_rows(x.data() + row * cols, 1, cols, cols, alone, serial_executor());
    EXPECT_EQ(unpack(batch, row), unpack(alone, 0)) << row;
  }
}

TEST(PackedRows, zero_tiny_and_huge_blocks_stay_finite) {
  std::vector<float> x(32 * 4, 0.0f);
  x[32] = std::numeric_limits<float>::denorm_min();
  x[64] = 3e38f;
  x[65] = -3e38f;
  x[96] = -1e-30f;
  PackedRows packed;
  quantize_rows(x.data(), 1, 128, 128, packed, serial_executor());
  const auto got = unpack(packed, 0);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], 0.0f);
  EXPECT_NEAR(got[64] / x[64], 1.0f, 1e-6f);
  EXPECT_NEAR(got[65] / x[65], 1.0f, 1e-6f);
  EXPECT_NEAR(got[96] / x[96], 1.0f, 1e-6f);
}

TEST(PackedRows, values_that_are_not_finite_become_nan) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t at : {32u, 45u, 63u}) {
      std::vector<float> x(96, 1.0f);
      x[at] = bad;
      PackedRows packed;
      quantize_rows(x.data(), 1, 96, 96, packed, serial_executor());
      const auto got = unpack(packed, 0);
      EXPECT_EQ(got[0], 1.0f);
      EXPECT_TRUE(std::isnan(got[32]));
      EXPECT_EQ(got[64], 1.0f);
    }
  }
}

TEST(PackedRows, refuses_a_stride_below_the_columns) {
  const std::vector<float> x(64);
  PackedRows packed;
  EXPECT_THROW(quantize_rows(x.data(), 2, 32, 31, packed, serial_executor()), Error);
  EXPECT_THROW(interleave_rows(x.data(), 2, 32, 31, packed, serial_executor()), Error);
}

}  // namespace
}  // namespace hone::kernels
