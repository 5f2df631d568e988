// SPDX-License-Identifier: Apache-2.0
// Blocks of every GGUF type written byte by byte, and the values that ggml's formulas give them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/error.h"
#include "hone/core/format/quant_format.h"

namespace hone {
namespace {

using BlockBytes = std::vector<std::uint8_t>;
using Values = std::vector<float>;

constexpr std::uint16_t kOne = 0x3c00, kHalf = 0x3800, kLargest = 0x7bff, kSmallest = 0x0001;

BlockBytes halves(std::initializer_list<std::uint16_t> values) {
  BlockBytes bytes;
  for (const std::uint16_t value : values) {
    bytes.push_back(static_cast<std::uint8_t>(value & 255));
    bytes.push_back(static_cast<std::uint8_t>(value >> 8));
  }
  return bytes;
}

BlockBytes operator+(BlockBytes a, const BlockBytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

StoredMatrix stored(GgufType type, const BlockBytes& bytes, Index rows) {
  const GgufTypeInfo& info = gguf_type_info(static_cast<std::uint32_t>(type), "test");
  StoredMatrix matrix;
  matrix.layout = WeightLayout::GgufBlocks;
  matrix.block_type = type;
  matrix.rows = rows;
  matrix.cols = static_cast<Index>(bytes.size()) / rows / info.bytes * info.block;
  matrix.bytes = std::as_bytes(std::span(bytes));
  return matrix;
}

Values decoded(GgufType type, const BlockBytes& bytes) {
  const StoredMatrix matrix = stored(type, bytes, 1);
  Values values(static_cast<std::size_t>(matrix.cols));
  decode_row(matrix, 0, values);
  return values;
}

// Sixteen bytes whose low nibbles are 0, 1, … 15 and whose high ones are 15, 14, … 0.
BlockBytes rising_and_falling() {
  BlockBytes bytes;
  for (int j = 0; j < 16; ++j) bytes.push_back(static_cast<std::uint8_t>(j | (15 - j) << 4));
  return bytes;
}
int rise_and_fall(int i) { return i < 16 ? i : 31 - i; }

TEST(GgufBlocks, q4_1_adds_its_minimum) {
  const Values values = decoded(GgufType::Q4_1, halves({kHalf, 0xc000}) + rising_and_falling());
  ASSERT_EQ(values.size(), 32u);
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(values[static_cast<std::size_t>(i)], 0.5f * static_cast<float>(rise_and_fall(i)) - 2);
}

// Fifth bits: set for elements 0, 7, 16 and 31.
const BlockBytes kFifth{0x81, 0x00, 0x01, 0x80};
int with_fifth(int i) {
  return rise_and_fall(i) + (i == 0 || i == 7 || i == 16 || i == 31 ? 16 : 0);
}

TEST(GgufBlocks, q5_0_has_its_fifth_bits_before_the_nibbles_and_zero_at_16) {
  const Values values = decoded(GgufType::Q5_0, halves({0xbc00}) + kFifth + rising_and_falling());
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(values[static_cast<std::size_t>(i)], static_cast<float>(16 - with_fifth(i))) << i;
}

TEST(GgufBlocks, q5_1_has_a_scale_a_minimum_and_fifth_bits) {
  const Values values =
      decoded(GgufType::Q5_1, halves({kOne, kHalf}) + kFifth + rising_and_falling());
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(values[static_cast<std::size_t>(i)], static_cast<float>(with_fifth(i)) + 0.5f) << i;
}

// Scales and minimums of six bits whose two top bits of the last four are stored apart.
constexpr int kScales[] = {1, 2, 3, 63, 33, 17, 16, 62};
constexpr int kMinimums[] = {0, 1, 2, 63, 48, 15, 32, 1};
const BlockBytes kSixBits{129, 66, 67, 255, 192, 1, 130, 63, 1, 241, 0, 30};

TEST(GgufBlocks, q4_k_has_eight_scales_and_minimums_of_six_bits) {
  BlockBytes bytes = halves({kOne, kHalf}) + kSixBits;
  for (int pair = 0; pair < 4; ++pair)  // sub-blocks 2 pair (low nibbles) and 2 pair + 1
    bytes = bytes + rising_and_falling() + rising_and_falling();
  ASSERT_EQ(bytes.size(), 144u);
  const Values values = decoded(GgufType::Q4_K, bytes);
  ASSERT_EQ(values.size(), 256u);
  for (int i = 0; i < 256; ++i) {
    const int sub = i / 32, l = i % 16, code = sub % 2 == 0 ? l : 15 - l;
    EXPECT_EQ(values[static_cast<std::size_t>(i)],
              static_cast<float>(kScales[sub] * code) - 0.5f * static_cast<float>(kMinimums[sub]))
        << i;
  }
}

TEST(GgufBlocks, q5_k_has_bit_s_of_32_bytes_for_sub_block_s) {
  BlockBytes bytes = halves({kHalf, kOne}) + kSixBits;
  // Bit s of byte l is set where l + s is odd.
  for (int l = 0; l < 32; ++l) bytes.push_back(l % 2 == 0 ? 0xaa : 0x55);
  for (int pair = 0; pair < 4; ++pair) bytes = bytes + rising_and_falling() + rising_and_falling();
  ASSERT_EQ(bytes.size(), 176u);
  const Values values = decoded(GgufType::Q5_K, bytes);
  for (int i = 0; i < 256; ++i) {
    const int sub = i / 32, l = i % 32;
    const int code = (sub % 2 == 0 ? l % 16 : 15 - l % 16) + (l + sub) % 2 * 16;
    EXPECT_EQ(values[static_cast<std::size_t>(i)],
              0.5f * static_cast<float>(kScales[sub] * code) - static_cast<float>(kMinimums[sub]))
        << i;
  }
}

TEST(GgufBlocks, q6_k_has_sixteen_signed_scales_and_its_own_at_the_end) {
  BlockBytes bytes;
  // In each half, quarters 0 and 1 have the low nibbles of 64 bytes, 2 and 3 the high ones: 5, 6, 7
  // and 8. Their top bits are 0, 1, 2 and 3: codes 5, 22, 39 and 56.
  for (int half = 0; half < 2; ++half) {
    bytes = bytes + BlockBytes(32, 0x75) + BlockBytes(32, 0x86);
  }
  bytes = bytes + BlockBytes(64, 0b11100100);
  for (int s = 0; s < 16; ++s) bytes.push_back(static_cast<std::uint8_t>(s == 15 ? -128 : s - 7));
  bytes = bytes + halves({kHalf});
  ASSERT_EQ(bytes.size(), 210u);
  const Values values = decoded(GgufType::Q6_K, bytes);
  constexpr int kCodes[] = {5, 22, 39, 56};
  for (int i = 0; i < 256; ++i) {
    const int scale = i / 16 == 15 ? -128 : i / 16 - 7;
    EXPECT_EQ(values[static_cast<std::size_t>(i)],
              0.5f * static_cast<float>(scale * (kCodes[i % 128 / 32] - 32)))
        << i;
  }
}

TEST(GgufBlocks, extreme_scales_give_finite_values_rounded_once) {
  const BlockBytes codes(128, 0xff);
  const BlockBytes six(12, 0xff);  // every scale and minimum is 63
  const double largest = 65504, smallest = 0x1p-24;
  const auto first = [&](std::uint16_t d, std::uint16_t m) {
    return decoded(GgufType::Q4_K, halves({d, m}) + six + codes)[0];
  };
  EXPECT_EQ(first(kLargest, 0), static_cast<float>(largest * 63 * 15));
  EXPECT_EQ(first(kSmallest, 0), static_cast<float>(smallest * 63 * 15));
  EXPECT_EQ(first(0x8000 | kLargest, kLargest), static_cast<float>(largest * -63 * 16));
  EXPECT_EQ(first(kLargest, kSmallest), static_cast<float>(largest * 945 - smallest * 63));
  EXPECT_EQ(first(0, kSmallest), static_cast<float>(smallest * -63));
  EXPECT_EQ(first(0, 0), 0.0f);
}

TEST(GgufBlocks, every_row_starts_at_its_own_blocks) {
  for (const GgufType type : {GgufType::Q4_1, GgufType::Q5_0, GgufType::Q5_1, GgufType::Q4_K,
                              GgufType::Q5_K, GgufType::Q6_K, GgufType::Q3_K, GgufType::IQ4_NL}) {
    const auto block =
        static_cast<std::size_t>(gguf_type_info(static_cast<std::uint32_t>(type), "t").bytes);
    BlockBytes all;
    for (std::size_t i = 0; i < 6 * block; ++i)
      all.push_back(static_cast<std::uint8_t>(i * 37 % 61));  // halves below infinity
    const StoredMatrix matrix = stored(type, all, 3);
    Values row(static_cast<std::size_t>(matrix.cols));
    for (std::size_t r = 0; r < 3; ++r) {
      decode_row(matrix, static_cast<Index>(r), row);
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(2 * r * block);
      EXPECT_EQ(row,
                decoded(type, BlockBytes(begin, begin + static_cast<std::ptrdiff_t>(2 * block))));
    }
  }
}

TEST(GgufBlocks, a_row_of_super_blocks_has_a_multiple_of_256_values) {
  const BlockBytes bytes(144);
  StoredMatrix matrix = stored(GgufType::Q4_K, bytes, 1);
  matrix.cols = 128;
  Values row(128);
  try {
    decode_row(matrix, 0, row);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("columns divisible by 256 for Q4_K, got 128"));
  }
  GgufBlock block;
  EXPECT_THROW(unpack_gguf_block(GgufType::Q8_0, std::as_bytes(std::span(bytes)).data(), block),
               Error);
}

}  // namespace
}  // namespace hone
