// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "hone/core/error.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/gemm/gemm.h"
#include "tests/kernels/gemm/weight_support.h"

namespace hone::kernels {
namespace {

using test::Fill;
using test::make_weight;
using test::TestWeight;

// The contract, computed from the stored integers without any panel, blocks ascending:
//   acc = fma(float(Σ (code - zero) q), scale_w * scale_x, acc), in Q6_K for each half of a block,
//   acc = fma(minimum, float(-Σ q) * scale_x, acc), if there are minimums.
struct Activation8 {
  std::vector<int> code;
  std::vector<float> scale;
};

Activation8 quantize(const float* x, Index cols) {
  Activation8 row;
  for (Index begin = 0; begin < cols; begin += kBlockCols) {
    const Index end = std::min(cols, begin + kBlockCols);
    float largest = 0;
    for (Index k = begin; k < end; ++k) largest = std::max(largest, std::fabs(x[k]));
    row.scale.push_back(largest / 127.0f);
    for (Index k = begin; k < end; ++k) {
      row.code.push_back(
          largest == 0 ? 0 : static_cast<int>(std::nearbyint(x[k] * (127.0f / largest))));
    }
  }
  return row;
}

struct Wanted {
  float value = 0;
  float magnitude = 0;  // Σ |terms|
};

Wanted contract_value(const TestWeight& weight, Index n, const Activation8& x) {
  float acc = 0, magnitude = 0;
  const Index step = weight.format == "q6_k" ? kBlockCols / 2 : kBlockCols;
  for (Index begin = 0; begin < weight.cols; begin += step) {
    const Index end = std::min(weight.cols, begin + step);
    const auto at = static_cast<std::size_t>(n * weight.cols + begin);
    const float x_scale = x.scale[static_cast<std::size_t>(begin / kBlockCols)];
    Index sum = 0, codes = 0;
    for (Index k = begin; k < end; ++k) {
      const int q = x.code[static_cast<std::size_t>(k)];
      sum += Index{weight.offset[static_cast<std::size_t>(n * weight.cols + k)]} * q;
      codes += q;
    }
    acc = std::fma(static_cast<float>(sum), weight.scale[at] * x_scale, acc);
    magnitude += std::fabs(static_cast<float>(sum) * weight.scale[at] * x_scale);
    if (weight.minimum.empty()) continue;
    acc = std::fma(weight.minimum[at], static_cast<float>(-codes) * x_scale, acc);
    magnitude += std::fabs(weight.minimum[at] * static_cast<float>(codes) * x_scale);
  }
  return {acc, magnitude};
}

bool runs_plain(const PackedMatrix& weight) {
  return gemm_kernel_name(weight, Act::Int8) == "plain";
}

// Vector kernels: the same bits. The plain one accumulates in double, and the contract in float:
// 4 ε √blocks · Σ|terms|. A product of scales that is subnormal is rounded to a multiple of 2^-149,
// which a block's sum multiplies by up to 32 · 127 · 128.
void expect_contract(const TestWeight& weight, const std::vector<float>& x, Index rows,
                     const std::vector<float>& y, bool plain) {
  for (Index m = 0; m < rows; ++m) {
    const Activation8 activation = quantize(x.data() + m * weight.cols, weight.cols);
    for (Index n = 0; n < weight.rows; ++n) {
      const auto [wanted, magnitude] = contract_value(weight, n, activation);
      const float got = y[static_cast<std::size_t>(m * weight.rows + n)];
      if (plain) {
        const float blocks = static_cast<float>(weight.cols) / 32 + 1;
        const float underflow = blocks * 32 * 127 * 128 * 0x1p-149f;
        ASSERT_NEAR(got, wanted, 4 * 0x1p-23f * std::sqrt(blocks) * magnitude + underflow)
            << weight.format << " " << weight.rows << "x" << weight.cols << " at " << m << "," << n;
      } else {
        ASSERT_EQ(got, wanted) << weight.format << " " << weight.rows << "x" << weight.cols
                               << " at " << m << "," << n << " of " << rows;
      }
    }
  }
}

std::vector<float> multiply(const PackedMatrix& weight, const std::vector<float>& x, Index rows,
                            Executor& executor) {
  std::vector<float> y(static_cast<std::size_t>(rows * weight.rows()), -1.0f);
  PackedRows packed;
  quantize_rows(x.data(), rows, weight.cols(), weight.cols(), packed, executor);
  const GemmOutput output{.weight = &weight, .y = y.data(), .y_stride = weight.rows()};
  gemm({.x = packed, .outputs = {&output, 1}, .executor = executor});
  return y;
}

void check_format(const std::string& format, Index rows, Index n, Index k, Fill fill,
                  float amplitude = 1.0f) {
  k = test::fitting_cols(format, k);
  const TestWeight weight = make_weight(format, n, k, 11, fill);
  const PackedMatrix packed = pack(weight.stored());
  const auto x = test::random_floats(rows * k, 12, amplitude);
  const auto y = multiply(packed, x, rows, serial_executor());
  expect_contract(weight, x, rows, y, runs_plain(packed));
}

TEST(GemmInt8, one_block_one_output) { check_format("q8_0", 1, 1, 32, Fill::Random); }

TEST(GemmInt8, keeps_the_contract_for_every_format_and_row_count) {
  for (const std::string& format : test::integer_formats()) {
    for (Index rows = 1; rows <= 33; ++rows) check_format(format, rows, 37, 128, Fill::Random);
  }
}

TEST(GemmInt8, keeps_the_contract_at_every_tail) {
  for (const std::string format : {"int8:row", "int4:g32", "int4:g64:sym", "int3:row:asym"}) {
    for (const Index k : {1, 2, 3, 15, 16, 17, 31, 32, 33, 64, 65, 255, 1000}) {
      for (const Index n : {1, 2, 15, 16, 17, 65, 131}) {
        check_format(format, 1, n, k, Fill::Random);
        check_format(format, 6, n, k, Fill::Random);
        check_format(format, 15, n, k, Fill::Random);
      }
    }
  }
}

// The record of the last group is shorter than the others, or the only one.
TEST(GemmInt8, keeps_the_contract_where_the_last_group_is_cut_off) {
  for (const std::string format : {"int4:g64:sym:f32", "int4:g96:asym:f16", "int8:g128:sym:f16",
                                   "int6:g96:asym:f32", "int3:g256:asym:bf16"}) {
    for (const Index k : {31, 32, 95, 97, 128, 160, 257, 320}) {
      for (const Index rows : {1, 6, 15}) check_format(format, rows, 37, k, Fill::Random);
    }
  }
}

TEST(GemmInt8, is_exact_where_careless_integer_sums_saturate) {
  for (const std::string& format : test::integer_formats()) {
    for (const Fill fill : {Fill::AllLowest, Fill::AllHighest}) {
      for (const Index rows : {1, 3, 14}) {
        const TestWeight weight = make_weight(format, 17, 256, 3, fill);
        const PackedMatrix packed = pack(weight.stored());
        std::vector<float> x(static_cast<std::size_t>(rows * 256), 1.0f);  // all codes 127
        for (std::size_t i = 0; i < x.size(); ++i) {
          if (i / 256 % 2 == 1) x[i] = -1.0f;  // odd rows: all codes -127
        }
        expect_contract(weight, x, rows, multiply(packed, x, rows, serial_executor()),
                        runs_plain(packed));
      }
    }
  }
}

TEST(GemmInt8, takes_zero_negative_and_subnormal_scales) {
  std::vector<std::string> formats = test::gguf_formats();
  for (const char* format : {"int8:row", "int4:g128:sym:f32"}) formats.push_back(format);
  for (const std::string& format : formats) {
    for (const Fill fill : {Fill::ZeroScale, Fill::NegativeScale, Fill::SubnormalScale}) {
      for (const Index rows : {1, 5, 16}) check_format(format, rows, 18, 256, fill);
    }
  }
}

TEST(GemmInt8, is_exact_over_65536_columns) {
  check_format("q4_0", 2, 3, 65536, Fill::Random);
  check_format("int8:row", 2, 3, 65536, Fill::AllLowest);
}

TEST(GemmInt8, large_row_counts_go_through_several_passes) {
  check_format("q8_0", 205, 70, 2080, Fill::Random);
  check_format("q4_0", 205, 70, 2080, Fill::Random);
  check_format("int4:g96", 100, 33, 1056, Fill::Random);
  for (const char* format : {"q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"})
    check_format(format, 205, 70, 2304, Fill::Random);
}

TEST(GemmInt8, a_row_alone_equals_the_row_in_a_batch) {
  std::vector<std::string> formats = test::gguf_formats();
  formats.push_back("int4:g64");
  for (const std::string& format : formats) {
    const Index cols = test::fitting_cols(format, 1600), rows = 230;
    const PackedMatrix weight = pack(make_weight(format, 83, cols, 9).stored());
    const auto x = test::random_floats(rows * cols, 8);
    ThreadPool pool(2);
    const auto batch = multiply(weight, x, rows, pool);
    for (Index m = 0; m < rows; m += 7) {
      const std::vector<float> one(x.begin() + m * cols, x.begin() + (m + 1) * cols);
      const auto alone = multiply(weight, one, 1, serial_executor());
      ASSERT_EQ(std::memcmp(alone.data(), batch.data() + m * 83, 83 * 4), 0) << format << " " << m;
    }
  }
}

TEST(GemmInt8, gives_the_same_bits_for_any_number_of_threads) {
  for (const char* format : {"q4_0", "q5_1", "q4_k", "q6_k"}) {
    const PackedMatrix weight = pack(make_weight(format, 500, 256, 9).stored());
    for (const Index rows : {1, 7, 16, 17, 200}) {
      const auto x = test::random_floats(rows * 256, 8);
      const auto one = multiply(weight, x, rows, serial_executor());
      for (const int threads : {1, 2, 7}) {
        ThreadPool pool(threads);
        EXPECT_EQ(multiply(weight, x, rows, pool), one)
            << format << " " << threads << " threads, " << rows << " rows";
      }
    }
  }
}

// Against double: the decoded weights times the values that the quantized activations stand for.
// |err| <= 4 ε √terms · Σ |terms|, with two terms per block at most four.
TEST(GemmInt8, is_close_to_double_for_every_block_type_and_prime_row_count) {
  for (const std::string& format : test::gguf_formats()) {
    for (const Index n : {1, 13, 53}) {
      const TestWeight weight = make_weight(format, n, 768, 5);
      const PackedMatrix packed = pack(weight.stored());
      std::vector<float> w(768), x_row(768);
      for (Index rows = 1; rows <= 33; ++rows) {
        const auto x = test::random_floats(rows * 768, 6);
        PackedRows codes;
        quantize_rows(x.data(), rows, 768, 768, codes, serial_executor());
        const auto y = multiply(packed, x, rows, serial_executor());
        for (Index m = 0; m < rows; ++m) {
          codes.unpack_row(m, x_row);
          for (Index i = 0; i < n; ++i) {
            decode_row(weight.stored(), i, w);
            double wanted = 0, magnitude = 0;
            for (std::size_t k = 0; k < w.size(); ++k) {
              const double term = static_cast<double>(w[k]) * static_cast<double>(x_row[k]);
              wanted += term;
              const auto at = static_cast<std::size_t>(i) * w.size() + k;
              const float code = weight.scale[at] * static_cast<float>(weight.offset[at]);
              magnitude += std::fabs(static_cast<double>(code * x_row[k]));
              if (!weight.minimum.empty())
                magnitude += std::fabs(static_cast<double>(weight.minimum[at] * x_row[k]));
            }
            ASSERT_NEAR(y[static_cast<std::size_t>(m * n + i)], wanted, 4 * 0x1p-23 * magnitude)
                << format << " " << m << "," << i << " of " << rows << "x" << n;
          }
        }
      }
    }
  }
}

// Runs with one kernel forced, and clears the variable again.
class ForcedKernel {
 public:
  explicit ForcedKernel(const std::string& value) {
    ::setenv("HONE_FORCE_KERNEL", value.c_str(), 1);
  }
  ~ForcedKernel() { ::unsetenv("HONE_FORCE_KERNEL"); }
};

class EveryInt8Kernel : public testing::TestWithParam<std::string> {};

TEST_P(EveryInt8Kernel, equals_the_contract) {
  const std::string name = GetParam();
  if (name != "plain" && !isa_enabled(parse_isa(name))) {
    GTEST_SKIP() << "no " << name << " here";
  }
  const ForcedKernel forced("gemm_q8:" + name + ",gemm_q4:" + name);
  for (const std::string& format : test::integer_formats()) {
    for (const Fill fill : {Fill::Random, Fill::AllLowest, Fill::AllHighest}) {
      for (const Index rows : {1, 2, 3, 5, 8, 11, 12, 13, 16, 29, 31}) {
        check_format(format, rows, 45, 192, fill);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(GemmInt8, EveryInt8Kernel,
                         testing::Values("plain", "avx2", "avxvnni", "avx512", "avx512vnni", "amx"),
                         [](const auto& tested) { return tested.param; });

TEST(GemmInt8, an_unknown_kernel_name_is_an_error) {
  const PackedMatrix weight = pack(make_weight("q8_0", 16, 32, 1).stored());
  const ForcedKernel forced("gemm_q8:fastest");
  EXPECT_THROW(gemm_kernel_name(weight, Act::Int8), Error);
}

TEST(GemmInt8, nan_in_one_row_stays_in_that_row) {
  const PackedMatrix weight = pack(make_weight("q8_0", 20, 64, 1).stored());
  auto x = test::random_floats(3 * 64, 2);
  const auto clean = multiply(weight, x, 3, serial_executor());
  x[64 + 5] = std::nanf("");
  const auto y = multiply(weight, x, 3, serial_executor());
  for (std::size_t n = 0; n < 20; ++n) {
    EXPECT_EQ(y[n], clean[n]);
    EXPECT_TRUE(std::isnan(y[20 + n]));
    EXPECT_EQ(y[40 + n], clean[40 + n]);
  }
}

}  // namespace
}  // namespace hone::kernels
