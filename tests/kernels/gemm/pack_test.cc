// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "hone/core/bf16.h"
#include "hone/core/error.h"
#include "hone/core/philox.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/gemm/gemm.h"
#include "hone/kernels/gemm/packed_matrix.h"
#include "tests/kernels/gemm/weight_support.h"

namespace hone::kernels {
namespace {

using test::make_weight;
using test::TestWeight;

void expect_same_bits(std::span<const float> got, std::span<const float> wanted,
                      const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size_bytes()), 0) << what;
}

TEST(Pack, unpacks_every_value_bit_for_bit) {
  for (const std::string& format : test::every_format()) {
    for (const Index cols : {1, 15, 16, 31, 32, 33, 127, 128, 256, 768, 1000}) {
      if (cols % test::block_of(format) != 0) continue;
      const TestWeight weight = make_weight(format, 19, cols, 7);
      const StoredMatrix stored = weight.stored();
      const PackedMatrix packed = pack(stored);
      std::vector<float> got(static_cast<std::size_t>(cols)), wanted(got.size());
      for (Index row = 0; row < 19; ++row) {
        packed.unpack_row(row, got);
        decode_row(stored, row, wanted);
        expect_same_bits(got, wanted, format + " cols " + std::to_string(cols));
      }
    }
  }
}

TEST(Pack, keeps_every_code_of_a_last_group_that_is_cut_off) {
  for (const std::string format :
       {"int4:g64:sym:f32", "int4:g96:asym:f16", "int8:g128:sym:f16", "int3:g256:asym:bf16"}) {
    for (const Index cols : {31, 32, 95, 97, 128, 160, 257, 320}) {
      const TestWeight weight = make_weight(format, 17, cols, 8);
      const PackedMatrix packed = pack(weight.stored());
      std::vector<float> got(static_cast<std::size_t>(cols)), wanted(got.size());
      for (Index row = 0; row < 17; ++row) {
        packed.unpack_row(row, got);
        decode_row(weight.stored(), row, wanted);
        expect_same_bits(got, wanted, format + " cols " + std::to_string(cols));
      }
    }
  }
}

TEST(Pack, interleaves_gate_and_up) {
  for (const std::string format : {"f32", "q4_0", "int8:row", "q4_k", "q5_1", "q6_k"}) {
    const Index cols = test::fitting_cols(format, 64);
    const TestWeight gate = make_weight(format, 37, cols, 1), up = make_weight(format, 37, cols, 2);
    const PackedMatrix packed = pack_gate_up(gate.stored(), up.stored());
    EXPECT_EQ(packed.rows(), 37);
    EXPECT_EQ(packed.panels(), 6);
    std::vector<float> got(static_cast<std::size_t>(cols)), wanted(got.size());
    for (Index row = 0; row < 74; ++row) {
      packed.unpack_row(row, got);
      decode_row(row < 37 ? gate.stored() : up.stored(), row % 37, wanted);
      expect_same_bits(got, wanted, format + " row " + std::to_string(row));
    }
  }
}

TEST(Pack, gives_the_same_bytes_for_any_number_of_threads) {
  const TestWeight weight = make_weight("int4:g64", 333, 320, 5);
  const PackedMatrix one = pack(weight.stored());
  ThreadPool pool(3);
  const PackedMatrix three = pack(weight.stored(), pool);
  ASSERT_EQ(one.bytes(), three.bytes());
  EXPECT_EQ(std::memcmp(one.panel(0), three.panel(0), static_cast<std::size_t>(one.bytes())), 0);
}

TEST(Pack, takes_no_more_memory_than_the_blocks_it_came_from) {
  const auto bits = [](const std::string& format) {
    const PackedMatrix packed = pack(make_weight(format, 64, 4096, 3).stored());
    return 8.0 * static_cast<double>(packed.bytes()) / (64 * 4096);
  };
  EXPECT_DOUBLE_EQ(bits("q8_0"), 8.5);
  EXPECT_DOUBLE_EQ(bits("q4_0"), 4.5);
  EXPECT_DOUBLE_EQ(bits("q4_1"), 5.0);
  EXPECT_DOUBLE_EQ(bits("int4:g32"), 4.75);
  EXPECT_DOUBLE_EQ(bits("int4:g128:sym:f16"), 4.125);
  EXPECT_NEAR(bits("int8:row"), 8.0, 0.01);
  EXPECT_DOUBLE_EQ(bits("bf16"), 16.0);
}

TEST(Pack, says_which_activations_a_weight_takes) {
  EXPECT_EQ(pack(make_weight("q8_0", 16, 32, 1).stored()).preferred_act(), Act::Int8);
  EXPECT_EQ(pack(make_weight("f16", 16, 32, 1).stored()).preferred_act(), Act::Float32);
  EXPECT_FALSE(pack(make_weight("f16", 16, 32, 1).stored()).takes(Act::Int8));
  const TestWeight weight = make_weight("int8:row", 16, 32, 1);
  StoredMatrix stored = weight.stored();
  stored.act_int8 = false;
  EXPECT_EQ(pack(stored).preferred_act(), Act::Float32);
  EXPECT_TRUE(pack(stored).takes(Act::Int8));
}

TEST(Pack, keeps_scales_and_minimums_of_sub_blocks_as_stored) {
  const auto bits = [](const std::string& format) {
    const PackedMatrix packed = pack(make_weight(format, 64, 4096, 3).stored());
    return 8.0 * static_cast<double>(packed.bytes()) / (64 * 4096);
  };
  EXPECT_DOUBLE_EQ(bits("q4_k"), 4.625);  // 4.5 in the file, whose factors have 6 bits
  // Codes take whole bytes in memory.
  EXPECT_DOUBLE_EQ(bits("q5_0"), 8.5);
  EXPECT_DOUBLE_EQ(bits("q5_1"), 6.0);
  EXPECT_DOUBLE_EQ(bits("q5_k"), 5.625);
  EXPECT_DOUBLE_EQ(bits("q6_k"), 6.5625);
  EXPECT_EQ(pack(make_weight("q4_k", 1, 256, 3).stored()).variant(), "q4x16min");
  EXPECT_EQ(pack(make_weight("q6_k", 1, 256, 3).stored()).variant(), "q6x16half");
}

// Levels of a table and powers of two become codes of 8 bits, Q3_K those of Q6_K.
TEST(Pack, levels_and_short_codes_unpack_and_multiply_as_they_decode) {
  constexpr Index kRows = 19, kCols = 512;
  PhiloxStream random(8);
  std::vector<std::vector<std::byte>> memory;
  const auto bytes_of_size = [&](Index size) {
    memory.emplace_back(static_cast<std::size_t>(size));
    for (std::byte& one : memory.back()) one = static_cast<std::byte>(random.below(256));
    return std::span(memory.back());
  };
  std::vector<StoredMatrix> matrices;
  for (const auto& [type, scale_at] : {std::pair(GgufType::IQ4_NL, 0), {GgufType::Q3_K, 108}}) {
    const GgufTypeInfo& info = gguf_type_info(static_cast<std::uint32_t>(type), "test");
    const auto bytes = bytes_of_size(kRows * kCols / info.block * info.bytes);
    const std::uint16_t scale = float_to_f16(3e-3f);
    for (std::size_t at = static_cast<std::size_t>(scale_at); at < bytes.size();
         at += static_cast<std::size_t>(info.bytes))
      std::memcpy(bytes.data() + at, &scale, sizeof scale);
    matrices.push_back({.layout = WeightLayout::GgufBlocks,
                        .rows = kRows,
                        .cols = kCols,
                        .block_type = type,
                        .bytes = bytes,
                        .quant = {}});
  }
  for (const char* name : {"log2:g32", "log3:g64", "log4:row", "log4:g48", "log6:g32"}) {
    const QuantSpec spec = parse_quant_spec(name);
    const Index scales = kRows * spec.groups_per_row(kCols);
    const auto codes = bytes_of_size(kRows * spec.code_bytes_per_row(kCols)),
               stored = bytes_of_size(scales * bytes_of(spec.scale_dtype));
    for (Index i = 0; i < scales; ++i) {
      const float value = 0.1f * (random.uniform() - 0.5f);
      const std::uint16_t half = float_to_f16(value);
      if (spec.scale_dtype == Dtype::Float32) {
        std::memcpy(stored.data() + i * 4, &value, 4);
      } else {
        std::memcpy(stored.data() + i * 2, &half, 2);
      }
    }
    matrices.push_back({.layout = WeightLayout::Canonical,
                        .rows = kRows,
                        .cols = kCols,
                        .bytes = {},
                        .quant = {spec, kRows, kCols, codes, stored, {}}});
  }
  std::vector<float> x(3 * kCols), want(kCols), got(kCols);
  for (float& value : x) value = random.uniform() - 0.5f;
  for (const StoredMatrix& matrix : matrices) {
    const PackedMatrix packed = pack(matrix);
    std::vector<float> y(3 * kRows);
    gemm(x.data(), 3, kCols, {.weight = &packed, .y = y.data(), .y_stride = kRows, .epilogue = {}},
         serial_executor());
    for (Index row = 0; row < kRows; ++row) {
      decode_row(matrix, row, want);
      packed.unpack_row(row, got);
      ASSERT_EQ(got, want) << packed.variant();
      for (Index i = 0; i < 3; ++i) {
        double sum = 0, size = 0;
        for (Index k = 0; k < kCols; ++k) {
          const double term = static_cast<double>(x[static_cast<std::size_t>(i * kCols + k)]) *
                              static_cast<double>(want[static_cast<std::size_t>(k)]);
          sum += term;
          size += std::abs(term);
        }
        EXPECT_NEAR(y[static_cast<std::size_t>(i * kRows + row)], sum, 4e-3 * size)
            << packed.variant();
      }
    }
  }
}

void expect_error(const StoredMatrix& stored, ErrorCategory category, const std::string& text) {
  try {
    pack(stored);
    ADD_FAILURE() << "no error about " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), category);
    EXPECT_THAT(error.what(), testing::HasSubstr(text));
  }
}

TEST(Pack, refuses_scales_that_are_not_finite) {
  TestWeight weight = make_weight("q4_0", 3, 64, 1);
  const std::uint16_t infinity = 0x7c00;
  std::memcpy(weight.bytes.data() + 3 * 18, &infinity, 2);  // row 1, block 1
  expect_error(weight.stored(), ErrorCategory::CorruptFile, "row 1, group 1");
  for (const auto& [format, at] :
       {std::pair("q4_k", 4 * 144 + 2), {"q5_k", 4 * 176}, {"q6_k", 4 * 210 + 208}}) {
    TestWeight super = make_weight(format, 3, 768, 1);
    std::memcpy(super.bytes.data() + at, &infinity, 2);  // row 1, block 1
    expect_error(super.stored(), ErrorCategory::CorruptFile, "row 1, group 1");
  }
  TestWeight rows = make_weight("int8:row", 3, 64, 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(rows.scales.data() + 8, &nan, 4);
  expect_error(rows.stored(), ErrorCategory::CorruptFile, "row 2, group 0");
}

TEST(Pack, refuses_spans_that_do_not_fit_the_shape) {
  TestWeight weight = make_weight("q8_0", 3, 64, 1);
  weight.bytes.pop_back();
  expect_error(weight.stored(), ErrorCategory::InvalidArgument, "204 bytes");
  TestWeight super = make_weight("q4_k", 3, 512, 1);
  super.cols = 480;
  super.rows = 1;
  super.bytes.resize(144);
  expect_error(super.stored(), ErrorCategory::InvalidArgument,
               "a multiple of 256 columns for Q4_K");
  TestWeight codes = make_weight("int4:g32", 3, 64, 1);
  codes.zeros.pop_back();
  expect_error(codes.stored(), ErrorCategory::InvalidArgument, "zeros");
  TestWeight dense = make_weight("f32", 3, 64, 1);
  dense.rows = 4;
  expect_error(dense.stored(), ErrorCategory::InvalidArgument, "1024 bytes");
  const TestWeight gate = make_weight("f32", 3, 64, 1), up = make_weight("f16", 3, 64, 1);
  EXPECT_THROW(pack_gate_up(gate.stored(), up.stored()), Error);
}

}  // namespace
}  // namespace hone::kernels
