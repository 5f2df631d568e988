// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "hone/core/bf16.h"
#include "hone/core/error.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/gemm/gemm.h"
#include "tests/kernels/gemm/weight_support.h"

namespace hone::kernels {
namespace {

using test::make_weight;
using test::TestWeight;

std::vector<float> multiply(const PackedMatrix& weight, const std::vector<float>& x, Index rows,
                            Executor& executor) {
  std::vector<float> y(static_cast<std::size_t>(rows * weight.rows()), -1.0f);
  PackedRows packed;
  interleave_rows(x.data(), rows, weight.cols(), weight.cols(), packed, executor);
  const GemmOutput output{.weight = &weight, .y = y.data(), .y_stride = weight.rows()};
  gemm({.x = packed, .outputs = {&output, 1}, .executor = executor});
  return y;
}

double norm(const float* values, Index count) {
  double sum = 0;
  for (Index i = 0; i < count; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return std::sqrt(sum);
}

// |err| <= 4 ε √K ‖w‖ ‖x‖ against double.
void expect_close(const TestWeight& weight, const std::vector<float>& x, Index rows,
                  const std::vector<float>& y) {
  const Index k = weight.cols;
  std::vector<float> w(static_cast<std::size_t>(k));
  for (Index n = 0; n < weight.rows; ++n) {
    decode_row(weight.stored(), n, w);
    for (Index m = 0; m < rows; ++m) {
      const float* row = x.data() + m * k;
      double wanted = 0;
      for (Index i = 0; i < k; ++i) {
        wanted += static_cast<double>(w[static_cast<std::size_t>(i)]) * static_cast<double>(row[i]);
      }
      const double bound = 4 * std::numeric_limits<float>::epsilon() *
                           std::sqrt(static_cast<double>(k)) * norm(w.data(), k) * norm(row, k);
      const float got = y[static_cast<std::size_t>(m * weight.rows + n)];
      ASSERT_LE(std::fabs(static_cast<double>(got) - wanted), bound + 1e-30)
          << weight.format << " " << weight.rows << "x" << k << " at " << m << "," << n << " of "
          << rows << ": got " << got << ", wanted " << wanted;
    }
  }
}

void check_format(const std::string& format, Index rows, Index n, Index k) {
  k = test::fitting_cols(format, k);
  const TestWeight weight = make_weight(format, n, k, 21);
  const PackedMatrix packed = pack(weight.stored());
  const auto x = test::random_floats(rows * k, 22);
  expect_close(weight, x, rows, multiply(packed, x, rows, serial_executor()));
}

TEST(GemmFloat, two_by_two_worked_by_hand) {
  const std::vector<float> w{1, 2, 3, 4}, x{5, 6, 7, 8};
  StoredMatrix stored;
  stored.rows = stored.cols = 2;
  stored.bytes = std::as_bytes(std::span(w));
  const PackedMatrix packed = pack(stored);
  EXPECT_EQ(multiply(packed, x, 2, serial_executor()), (std::vector<float>{17, 39, 23, 53}));
}

TEST(GemmFloat, is_close_to_double_for_every_format_and_row_count) {
  for (const std::string& format : test::every_format()) {
    for (Index rows = 1; rows <= 33; ++rows) check_format(format, rows, 37, 64);
  }
}

TEST(GemmFloat, is_close_to_double_at_every_tail) {
  for (const std::string format : {"f32", "f16", "bf16", "int8:row", "int4:g32"}) {
    for (const Index k : {1, 2, 3, 15, 16, 17, 31, 65, 255, 1000}) {
      for (const Index n : {1, 15, 16, 17, 65, 131}) {
        check_format(format, 1, n, k);
        check_format(format, 6, n, k);
      }
    }
  }
}

TEST(GemmFloat, large_row_counts_go_through_several_passes) {
  for (const std::string format : {"f32", "f16", "q4_0"}) check_format(format, 205, 70, 1056);
}

TEST(GemmFloat, a_row_alone_equals_the_row_in_a_batch) {
  for (const std::string format : {"f32", "bf16", "q8_0"}) {
    const PackedMatrix weight = pack(make_weight(format, 83, 1600, 9).stored());
    const Index rows = 230;
    const auto x = test::random_floats(rows * 1600, 8);
    ThreadPool pool(2);
    const auto batch = multiply(weight, x, rows, pool);
    for (Index m = 0; m < rows; m += 7) {
      const std::vector<float> one(x.begin() + m * 1600, x.begin() + (m + 1) * 1600);
      const auto alone = multiply(weight, one, 1, serial_executor());
      ASSERT_EQ(std::memcmp(alone.data(), batch.data() + m * 83, 83 * 4), 0) << format << " " << m;
    }
  }
}

TEST(GemmFloat, gives_the_same_bits_for_any_number_of_threads) {
  const PackedMatrix weight = pack(make_weight("f32", 500, 256, 9).stored());
  for (const Index rows : {1, 7, 16, 17, 200}) {
    const auto x = test::random_floats(rows * 256, 8);
    const auto one = multiply(weight, x, rows, serial_executor());
    for (const int threads : {1, 2, 7}) {
      ThreadPool pool(threads);
      EXPECT_EQ(multiply(weight, x, rows, pool), one) << threads << " threads, " << rows << " rows";
    }
  }
}

// Float32 activations see exactly the decoded weights.
TEST(GemmFloat, codes_give_the_bits_of_the_decoded_matrix) {
  for (const std::string& format : test::integer_formats()) {
    const Index cols = test::fitting_cols(format, 224);
    const TestWeight weight = make_weight(format, 50, cols, 31);
    const StoredMatrix stored = weight.stored();
    std::vector<float> decoded(static_cast<std::size_t>(50 * cols));
    decode(stored, decoded);
    StoredMatrix dense;
    dense.rows = 50;
    dense.cols = cols;
    dense.bytes = std::as_bytes(std::span(decoded));
    for (const Index rows : {1, 4, 9}) {
      const auto x = test::random_floats(rows * cols, 8);
      EXPECT_EQ(multiply(pack(stored), x, rows, serial_executor()),
                multiply(pack(dense), x, rows, serial_executor()))
          << format;
    }
  }
}

TEST(GemmFloat, plain_kernels_agree_with_the_reference) {
  ::setenv("HONE_FORCE_KERNEL", "gemm_f32:plain,gemm_q4_f32:plain", 1);
  for (const std::string format : {"f32", "q4_0"}) {
    const PackedMatrix weight = pack(make_weight(format, 37, 96, 9).stored());
    EXPECT_EQ(gemm_kernel_name(weight, Act::Float32), "plain");
    const auto x = test::random_floats(5 * 96, 8);
    PackedRows rows;
    interleave_rows(x.data(), 5, 96, 96, rows, serial_executor());
    std::vector<float> wanted(5 * 37);
    gemm_ref(rows, {.weight = &weight, .y = wanted.data(), .y_stride = 37});
    EXPECT_EQ(multiply(weight, x, 5, serial_executor()), wanted);
  }
  ::unsetenv("HONE_FORCE_KERNEL");
}

TEST(GemmFloat, refuses_wrong_shapes_in_one_sentence) {
  const PackedMatrix weight = pack(make_weight("f32", 4, 8, 1).stored());
  const std::vector<float> x(32);
  std::vector<float> y(32);
  PackedRows rows, codes;
  interleave_rows(x.data(), 2, 16, 16, rows, serial_executor());
  const GemmOutput output{.weight = &weight, .y = y.data(), .y_stride = 4};
  EXPECT_THROW(gemm({.x = rows, .outputs = {&output, 1}, .executor = serial_executor()}), Error);
  quantize_rows(x.data(), 2, 8, 8, codes, serial_executor());
  EXPECT_THROW(gemm({.x = codes, .outputs = {&output, 1}, .executor = serial_executor()}), Error);
  interleave_rows(x.data(), 2, 8, 8, rows, serial_executor());
  const GemmOutput narrow{.weight = &weight, .y = y.data(), .y_stride = 3};
  EXPECT_THROW(gemm({.x = rows, .outputs = {&narrow, 1}, .executor = serial_executor()}), Error);
}

TEST(GemmFloat, empty_shapes_do_nothing_or_give_zero) {
  const PackedMatrix no_rows = pack(make_weight("f32", 0, 8, 1).stored());
  EXPECT_TRUE(multiply(no_rows, std::vector<float>(8), 1, serial_executor()).empty());
  for (const std::string format : {"f32", "int8:row"}) {
    const PackedMatrix no_cols = pack(make_weight(format, 3, 0, 1).stored());
    EXPECT_EQ(multiply(no_cols, {}, 2, serial_executor()), std::vector<float>(6, 0.0f)) << format;
  }
  const PackedMatrix weight = pack(make_weight("f32", 3, 8, 1).stored());
  EXPECT_TRUE(multiply(weight, {}, 0, serial_executor()).empty());
}

}  // namespace
}  // namespace hone::kernels
