// SPDX-License-Identifier: Apache-2.0
// Products of whole numbers, which f32 holds exactly: every format, tile and tail must give the
// integers themselves. And the algebra that no rounding excuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/gemm/gemm.h"
#include "tests/kernels/gemm/weight_support.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kInfinity;
using test::kNan;
using test::random_integers;
using test::random_values;
using Values = std::vector<float>;

// A dense matrix and the bytes it is stored as.
struct Dense {
  Dense(const Values& values, Index rows, Index cols, Dtype dtype = Dtype::Float32) {
    for (const float value : values) {
      if (dtype == Dtype::Float32) append(value);
      if (dtype == Dtype::Float16) append(float_to_f16(value));
      if (dtype == Dtype::BFloat16) append(float_to_bf16(value));
      if (dtype == Dtype::Float64) append(static_cast<double>(value));
    }
    stored.rows = rows;
    stored.cols = cols;
    stored.dtype = dtype;
    stored.bytes = bytes;
  }
  Dense(const Dense&) = delete;
  template <class T>
  void append(T value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), from, from + sizeof value);
  }
  std::vector<std::byte> bytes;
  StoredMatrix stored;
};

PackedMatrix pack_dense(const Values& values, Index rows, Index cols,
                        Dtype dtype = Dtype::Float32) {
  return pack(Dense(values, rows, cols, dtype).stored);
}

Values multiply(const PackedMatrix& weight, const Values& x, Index rows,
                Executor& executor = serial_executor()) {
  Values y(static_cast<std::size_t>(rows * weight.rows()), -7.0f);
  gemm(x.data(), rows, weight.cols(), {.weight = &weight, .y = y.data(), .y_stride = weight.rows()},
       executor);
  return y;
}

// x · Wᵀ in 64-bit integers.
Values integer_product(const Values& w, const Values& x, Index rows, Index outputs, Index cols) {
  Values y;
  for (Index m = 0; m < rows; ++m) {
    for (Index n = 0; n < outputs; ++n) {
      std::int64_t sum = 0;
      for (Index k = 0; k < cols; ++k)
        sum +=
            static_cast<std::int64_t>(w[n * cols + k]) * static_cast<std::int64_t>(x[m * cols + k]);
      y.push_back(static_cast<float>(sum));
    }
  }
  return y;
}

TEST(GemmExact, dense_formats_give_the_integers_at_every_row_count_and_tail) {
  ThreadPool pool(2);
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16, Dtype::BFloat16, Dtype::Float64}) {
    for (const Index outputs : {1, 15, 16, 17, 65}) {
      for (const Index cols : {1, 2, 31, 32, 33, 100}) {
        const Values w = random_integers(outputs * cols, 1, 100);  // exact in bf16 too
        const PackedMatrix weight = pack_dense(w, outputs, cols, dtype);
        for (const Index rows : {1, 2, 3, 4, 5, 8, 11, 12, 13, 14, 15, 16, 17, 25, 193}) {
          const Values x = random_integers(rows * cols, 2, 100);
          ASSERT_EQ(multiply(weight, x, rows, pool), integer_product(w, x, rows, outputs, cols))
              << name_of(dtype) << " " << rows << "x" << outputs << "x" << cols;
        }
      }
    }
  }
}

// Q8_0 and Q4_0 blocks with scale 1 whose activations are 127 times a power of two at most: the
// quantized x is x itself.
TEST(GemmExact, quantized_formats_give_the_integers_when_activations_are_codes) {
  ThreadPool pool(2);
  for (const GgufType type : {GgufType::Q8_0, GgufType::Q4_0}) {
    const bool eight = type == GgufType::Q8_0;
    for (const Index outputs : {1, 16, 17, 50}) {
      for (const Index cols : {32, 96, 1056}) {
        Values w = random_integers(outputs * cols, 3, eight ? 127 : 7);
        // The extremes fix the scales: absmax 127 for Q8_0; -8 for Q4_0, whose scale is then 1.
        for (Index block = 0; block < outputs * cols; block += 32) w[block] = eight ? 127 : -8;
        std::vector<std::byte> bytes(
            static_cast<std::size_t>(outputs * cols / 32 * (eight ? kQ8_0Bytes : kQ4_0Bytes)));
        eight ? encode_q8_0(w, bytes) : encode_q4_0(w, bytes);
        StoredMatrix stored;
        stored.layout = WeightLayout::GgufBlocks;
        stored.block_type = type;
        stored.rows = outputs;
        stored.cols = cols;
        stored.bytes = bytes;
        const PackedMatrix weight = pack(stored);
        ASSERT_EQ(weight.preferred_act(), Act::Int8);
        for (const Index rows : {1, 3, 7, 12, 14, 16, 17, 40}) {
          Values x = random_integers(rows * cols, 4, 127);
          for (Index block = 0; block < rows * cols; block += 32) x[block + 31] = -127;
          ASSERT_EQ(multiply(weight, x, rows, pool), integer_product(w, x, rows, outputs, cols))
              << (eight ? "q8_0 " : "q4_0 ") << rows << "x" << outputs << "x" << cols;
        }
      }
    }
  }
}

// Blocks whose f16 scale and minimum are 1: weights are whole numbers of up to 4096, and each block
// of x has one large value, so that every partial sum is below 2^24.
TEST(GemmExact, sub_blocks_give_the_integers_when_the_scale_of_a_block_is_one) {
  ThreadPool pool(2);
  const std::uint16_t one = 0x3c00;
  for (const std::string format : {"q4_1", "q5_1", "q4_k", "q5_k", "q6_k"}) {
    for (const Index outputs : {1, 16, 17, 53}) {
      const Index cols = 512;
      test::TestWeight made = test::make_weight(format, outputs, cols, 3);
      const GgufTypeInfo& info =
          gguf_type_info(static_cast<std::uint32_t>(made.stored().block_type), format);
      for (std::size_t at = 0; at < made.bytes.size(); at += static_cast<std::size_t>(info.bytes)) {
        std::memcpy(made.bytes.data() + at + (format == "q6_k" ? 208 : 0), &one, 2);
        if (format != "q6_k") std::memcpy(made.bytes.data() + at + 2, &one, 2);
      }
      Values w(static_cast<std::size_t>(outputs * cols));
      decode(made.stored(), w);
      ASSERT_TRUE(std::ranges::all_of(w, [](float v) { return v == std::nearbyint(v); }));
      const PackedMatrix weight = pack(made.stored());
      for (const Index rows : {1, 3, 7, 12, 14, 16, 17, 40}) {
        Values x = random_integers(rows * cols, 4, 2);
        for (Index block = 0; block < rows * cols; block += 32) x[block + block / 32 % 32] = -127;
        ASSERT_EQ(multiply(weight, x, rows, pool), integer_product(w, x, rows, outputs, cols))
            << format << " " << rows << "x" << outputs;
      }
    }
  }
}

// A row of x that is 127 in one column and 0 elsewhere is quantized without an error, and every
// output is a multiple of one stored weight: a code that is packed to another place, or loses an
// upper bit, shows in its own column.
TEST(GemmExact, rows_with_one_value_select_each_column_of_each_format) {
  ThreadPool pool(2);
  for (const std::string& format : test::gguf_formats()) {
    for (const test::Fill fill :
         {test::Fill::Random, test::Fill::AllLowest, test::Fill::AllHighest}) {
      const Index outputs = 19, cols = test::fitting_cols(format, 96);
      const test::TestWeight made = test::make_weight(format, outputs, cols, 11, fill);
      Values w(static_cast<std::size_t>(outputs * cols));
      decode(made.stored(), w);
      const PackedMatrix weight = pack(made.stored());
      Values x(static_cast<std::size_t>(cols * cols), 0.0f);
      for (Index k = 0; k < cols; ++k) x[static_cast<std::size_t>(k * (cols + 1))] = 127.0f;
      const Values y = multiply(weight, x, cols, pool);
      for (Index k = 0; k < cols; ++k) {
        // The same for the row alone, which takes another kernel.
        const auto begin = x.begin() + k * cols;
        const Values alone = multiply(weight, Values(begin, begin + cols), 1, pool);
        for (Index n = 0; n < outputs; ++n) {
          const float expected = 127.0f * w[static_cast<std::size_t>(n * cols + k)];
          const float got = y[static_cast<std::size_t>(k * outputs + n)];
          ASSERT_NEAR(got, expected, 1e-5f * std::abs(expected) + 1e-6f)
              << format << ", output " << n << ", column " << k;
          ASSERT_EQ(alone[static_cast<std::size_t>(n)], got) << format << ", column " << k;
        }
      }
    }
  }
}

// Scales do not depend on the sign of x, and rounding is symmetric, also where a kernel moves the
// sign of the weight to x.
TEST(GemmExact, negative_rows_give_negative_outputs_bit_for_bit) {
  ThreadPool pool(2);
  for (const std::string& format : test::gguf_formats()) {
    const Index outputs = 35, cols = test::fitting_cols(format, 160);
    const test::TestWeight made = test::make_weight(format, outputs, cols, 12, test::Fill::Random);
    const PackedMatrix weight = pack(made.stored());
    for (const Index rows : {1, 2, 4, 7, 13, 29}) {
      Values x = random_integers(rows * cols, 5, 1000);
      const Values y = multiply(weight, x, rows, pool);
      for (float& value : x) value = -value;
      const Values negative = multiply(weight, x, rows, pool);
      for (std::size_t i = 0; i < y.size(); ++i) {
        ASSERT_EQ(negative[i], -y[i]) << format << ", " << rows << " rows, output " << i;
      }
    }
  }
}

TEST(GemmExact, an_identity_returns_its_input_bit_for_bit) {
  const Index n = 37;
  Values identity(static_cast<std::size_t>(n * n), 0.0f);
  for (Index i = 0; i < n; ++i) identity[static_cast<std::size_t>(i * (n + 1))] = 1.0f;
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16, Dtype::BFloat16}) {
    const PackedMatrix weight = pack_dense(identity, n, n, dtype);
    for (const Index rows : {1, 5, 13, 20}) {
      Values x = random_values(rows * n, 5, 1e20f);
      x[0] = 1e-42f;  // a denormal
      EXPECT_EQ(multiply(weight, x, rows), x) << name_of(dtype) << " " << rows;
    }
  }
}

TEST(GemmExact, permuted_weight_rows_give_permuted_outputs) {
  const Index outputs = 53, cols = 70, rows = 9;
  const Values w = random_values(outputs * cols, 6);
  Values turned(w.size());
  for (Index n = 0; n < outputs; ++n)
    std::copy_n(w.begin() + n * cols, cols, turned.begin() + (n + 20) % outputs * cols);
  const Values x = random_values(rows * cols, 7);
  const Values y = multiply(pack_dense(w, outputs, cols), x, rows);
  const Values z = multiply(pack_dense(turned, outputs, cols), x, rows);
  for (Index m = 0; m < rows; ++m)
    for (Index n = 0; n < outputs; ++n)
      ASSERT_EQ(z[m * outputs + (n + 20) % outputs], y[m * outputs + n]);
}

TEST(GemmExact, powers_of_two_pass_through_weights_and_activations) {
  const Index outputs = 20, cols = 65;
  for (const Index rows : {1, 4, 18}) {
    Values w = random_values(outputs * cols, 8), x = random_values(rows * cols, 9);
    const Values once = multiply(pack_dense(w, outputs, cols), x, rows);
    for (float& value : w) value *= 0.25f;
    for (float& value : x) value *= -1024;
    const Values scaled = multiply(pack_dense(w, outputs, cols), x, rows);
    for (std::size_t i = 0; i < once.size(); ++i) ASSERT_EQ(scaled[i], -256 * once[i]);
  }
}

TEST(GemmExact, zero_columns_at_the_end_change_no_bit) {
  const Index outputs = 19, rows = 6;
  for (const Index cols : {5, 32, 47}) {
    const Index wide = cols + 40;
    const Values w = random_values(outputs * cols, 10), x = random_values(rows * cols, 11);
    Values padded_w(static_cast<std::size_t>(outputs * wide), 0.0f);
    Values padded_x(static_cast<std::size_t>(rows * wide), 3.0f);
    for (Index n = 0; n < outputs; ++n)
      std::copy_n(w.begin() + n * cols, cols, padded_w.begin() + n * wide);
    for (Index m = 0; m < rows; ++m)
      std::copy_n(x.begin() + m * cols, cols, padded_x.begin() + m * wide);
    EXPECT_EQ(multiply(pack_dense(padded_w, outputs, wide), padded_x, rows),
              multiply(pack_dense(w, outputs, cols), x, rows));
  }
}

TEST(GemmNotFinite, a_bad_weight_spoils_its_output_and_no_other) {
  const Index outputs = 35, cols = 40;
  for (const float bad : {kNan, kInfinity}) {
    for (const Index at : {0, 15, 16, 34}) {
      Values w = random_values(outputs * cols, 12);
      w[static_cast<std::size_t>(at * cols + 7)] = bad;
      for (const Index rows : {1, 6, 20}) {
        const Values y =
            multiply(pack_dense(w, outputs, cols), random_values(rows * cols, 13), rows);
        for (Index i = 0; i < rows * outputs; ++i)
          ASSERT_EQ(std::isfinite(y[static_cast<std::size_t>(i)]), i % outputs != at) << at;
      }
    }
  }
}

TEST(GemmNotFinite, a_bad_activation_spoils_its_row_and_no_other) {
  const Index outputs = 20, cols = 64, rows = 18;
  const PackedMatrix weight = pack_dense(random_values(outputs * cols, 14), outputs, cols);
  const Values x = random_values(rows * cols, 15);
  const Values clean = multiply(weight, x, rows);
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const Index row : {0, 3, 4, 12, 17}) {
      Values spoilt = x;
      spoilt[static_cast<std::size_t>(row * cols + 50)] = bad;
      const Values y = multiply(weight, spoilt, rows);
      for (Index i = 0; i < rows * outputs; ++i) {
        const auto at = static_cast<std::size_t>(i);
        ASSERT_TRUE(i / outputs == row ? !std::isfinite(y[at]) : y[at] == clean[at]) << i;
      }
    }
  }
}

TEST(GemmNotFinite, largest_halves_are_numbers) {
  const PackedMatrix half = pack_dense({65504, -65504}, 2, 1, Dtype::Float16);
  EXPECT_EQ(multiply(half, {1}, 1), (Values{65504, -65504}));
  const PackedMatrix brain = pack_dense({3e38f, -1e-38f}, 2, 1, Dtype::BFloat16);
  for (const float y : multiply(brain, {1}, 1)) EXPECT_TRUE(std::isfinite(y));
}

// Rows of y may lie apart, and the residual may be y itself.
TEST(GemmStrides, gaps_between_rows_of_the_output_stay) {
  const Index outputs = 21, cols = 48, stride = outputs + 4;
  const Values w = random_integers(outputs * cols, 16, 9);
  const PackedMatrix weight = pack_dense(w, outputs, cols);
  for (const Index rows : {1, 5, 16, 17, 30}) {
    const Index x_stride = cols + 3;
    const Values x = random_integers(rows * x_stride, 17, 9);
    Values close;
    for (Index m = 0; m < rows; ++m)
      close.insert(close.end(), x.begin() + m * x_stride, x.begin() + m * x_stride + cols);
    Values y(static_cast<std::size_t>(rows * stride), -7.0f);
    gemm(x.data(), rows, x_stride, {.weight = &weight, .y = y.data(), .y_stride = stride},
         serial_executor());
    const Values expected = integer_product(w, close, rows, outputs, cols);
    for (Index i = 0; i < rows * stride; ++i) {
      const Index m = i / stride, n = i % stride;
      ASSERT_EQ(y[static_cast<std::size_t>(i)],
                n < outputs ? expected[static_cast<std::size_t>(m * outputs + n)] : -7.0f);
    }
  }
}

TEST(GemmStrides, adding_to_the_output_itself_accumulates) {
  const Index outputs = 40, cols = 33;
  const Values w = random_integers(outputs * cols, 18, 9);
  const PackedMatrix weight = pack_dense(w, outputs, cols);
  for (const Index rows : {1, 7, 16, 40}) {
    const Values x = random_integers(rows * cols, 19, 9);
    Values y = random_integers(rows * outputs, 20, 50);
    const Values before = y;
    const GemmOutput output{.weight = &weight,
                            .y = y.data(),
                            .y_stride = outputs,
                            .epilogue = {.residual = y.data(), .residual_stride = outputs}};
    gemm(x.data(), rows, cols, output, serial_executor());
    gemm(x.data(), rows, cols, output, serial_executor());
    const Values product = integer_product(w, x, rows, outputs, cols);
    for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], before[i] + 2 * product[i]);
  }
}

}  // namespace
}  // namespace hone::kernels
