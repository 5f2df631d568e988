// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "hone/core/error.h"
#include "hone/core/thread/thread_pool.h"
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
