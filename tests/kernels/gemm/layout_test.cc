// SPDX-License-Identifier: Apache-2.0
// Packed weights and activations byte by byte: where panel_layout.h says that something lies, it
// lies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/thread_pool.h"
#include "hone/kernels/gemm/packed_matrix.h"
#include "hone/kernels/gemm/packed_rows.h"
#include "tests/kernels/gemm/weight_support.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::random_values;
using Values = std::vector<float>;

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

TEST(PanelLayout, q8_0_codes_lie_in_quads_of_their_row_behind_the_scales_of_the_block) {
  const test::TestWeight weight = test::make_weight("q8_0", 18, 64, 1);
  const PackedMatrix packed = pack(weight.stored());
  EXPECT_EQ(packed.panels(), 2);
  EXPECT_EQ(packed.layout().panel_bytes, 2 * 16 * 2 + 2 * 512);
  for (Index row = 0; row < 18; ++row) {
    const std::byte* panel = packed.panel(row / 16);
    for (Index k = 0; k < 64; ++k) {
      const Index block = k / 32, j = k % 32, lane = row % 16;
      const std::byte* const scales = panel + block * 544;
      const auto code = load<std::uint8_t>(scales + 32 + j / 4 * 64 + lane * 4 + j % 4);
      const auto at = static_cast<std::size_t>(row * 64 + k);
      ASSERT_EQ(int{code} - 128, weight.offset[at]) << row << " " << k;
      ASSERT_EQ(f16_to_float(load<std::uint16_t>(scales + lane * 2)), weight.scale[at]);
    }
  }
}

TEST(PanelLayout, q4_0_pairs_column_j_with_column_j_plus_16_behind_the_scales_of_the_block) {
  const test::TestWeight weight = test::make_weight("q4_0", 16, 96, 2);
  const PackedMatrix packed = pack(weight.stored());
  EXPECT_EQ(packed.layout().panel_bytes, 3 * (32 + 256) + 32) << "padded to 64";
  for (Index row = 0; row < 16; ++row) {
    for (Index k = 0; k < 96; ++k) {
      const Index low = k % 16;
      const std::byte* const block = packed.panel(0) + k / 32 * 288;
      const auto at = static_cast<std::size_t>(row * 96 + k);
      const auto pair = load<std::uint8_t>(block + 32 + low / 4 * 64 + row * 4 + low % 4);
      const int code = k % 32 < 16 ? pair & 15 : pair >> 4;
      ASSERT_EQ(code - 8, weight.offset[at]) << row << " " << k;
      ASSERT_EQ(f16_to_float(load<std::uint16_t>(block + row * 2)), weight.scale[at]);
    }
  }
}

// What the panels of a format must contain, read by offsets that the test knows.
struct Places {
  const char* format;
  Index scale_bytes, block_bytes;   // of 16 rows; of the codes of 32 columns
  Index scale_stride, code_stride;  // from group to group, from block to block
  Index group_blocks, first_code, panel_bytes;
};

TEST(PanelLayout, scales_lie_beside_codes_of_their_block_and_in_front_of_those_of_wider_groups) {
  for (const Places& at : {Places{"int4:g32:sym:f16", 32, 256, 288, 288, 1, 32, 1152},
                           Places{"int4:g32:sym:f32", 64, 256, 320, 320, 1, 64, 1280},
                           Places{"int8:g32:sym:f32", 64, 512, 576, 576, 1, 64, 2304},
                           Places{"int4:g64:sym:f16", 32, 256, 32, 256, 2, 64, 64 + 1024},
                           Places{"int8:row", 64, 512, 64, 512, 4, 64, 64 + 2048}}) {
    const test::TestWeight weight = test::make_weight(at.format, 16, 128, 4);
    const PackedMatrix packed = pack(weight.stored());
    EXPECT_EQ(packed.layout().panel_bytes, at.panel_bytes) << at.format;
    const std::byte* const panel = packed.panel(0);
    for (Index row = 0; row < 16; ++row) {
      for (Index k = 0; k < 128; ++k) {
        const Index block = k / 32, j = k % 32, low = at.block_bytes == 256 ? k % 16 : j;
        const auto stored = load<std::uint8_t>(panel + at.first_code + block * at.code_stride +
                                               low / 4 * 64 + row * 4 + low % 4);
        const int code = at.block_bytes == 512 ? stored - 128
                         : j < 16              ? (stored & 15) - 8
                                               : (stored >> 4) - 8;
        const std::byte* const scale =
            panel + block / at.group_blocks * at.scale_stride + row * at.scale_bytes / 16;
        const float value =
            at.scale_bytes == 32 ? f16_to_float(load<std::uint16_t>(scale)) : load<float>(scale);
        const auto i = static_cast<std::size_t>(row * 128 + k);
        ASSERT_EQ(code, weight.offset[i]) << at.format << " " << row << " " << k;
        ASSERT_EQ(value, weight.scale[i]) << at.format << " " << row << " " << k;
      }
    }
  }
}

TEST(PanelLayout, q4_k_has_halves_of_a_group_then_factors_then_codes) {
  const test::TestWeight weight = test::make_weight("q4_k", 18, 512, 2);
  const PackedMatrix packed = pack(weight.stored());
  EXPECT_EQ(packed.layout().panel_bytes, 2 * 64 + 16 * 32 + 16 * 256);
  for (Index row = 0; row < 18; ++row) {
    const std::byte* panel = packed.panel(row / 16);
    for (Index k = 0; k < 512; ++k) {
      const Index block = k / 32, lane = row % 16, low = k % 16;
      const auto at = static_cast<std::size_t>(row * 512 + k);
      const auto pair =
          load<std::uint8_t>(panel + 640 + block * 256 + low / 4 * 64 + lane * 4 + low % 4);
      ASSERT_EQ(k % 32 < 16 ? pair & 15 : pair >> 4, weight.offset[at]) << row << " " << k;
      const std::byte* group = panel + k / 256 * 64 + lane * 2;
      const std::byte* factors = panel + 128 + block * 32 + lane;
      ASSERT_EQ(f16_to_float(load<std::uint16_t>(group)) * load<std::uint8_t>(factors),
                weight.scale[at]);
      ASSERT_EQ(f16_to_float(load<std::uint16_t>(group + 32)) * load<std::uint8_t>(factors + 16),
                weight.minimum[at]);
    }
  }
}

// A code of a block at `block` whose upper `bits` bits lie behind the lower four.
int code_in_two_parts(const std::byte* block, int bits, Index lane, Index j) {
  const Index quad = j / 4, at = lane * 4 + j % 4;
  const int pair = load<std::uint8_t>(block + quad % 4 * 64 + at);
  const int upper = load<std::uint8_t>(block + 256 + quad % bits * 64 + at);
  const int first = static_cast<int>(quad / bits) * bits;
  return (j < 16 ? pair & 15 : pair >> 4) + 16 * (upper >> first & ((1 << bits) - 1));
}

TEST(PanelLayout, q6_k_has_two_upper_bits_and_a_signed_factor_for_each_half_of_a_block) {
  const test::TestWeight weight = test::make_weight("q6_k", 16, 512, 2);
  const PackedMatrix packed = pack(weight.stored());
  EXPECT_EQ(packed.layout().panel_bytes, 2 * 32 + 16 * 32 + 16 * 384);
  const std::byte* panel = packed.panel(0);
  for (Index row = 0; row < 16; ++row) {
    for (Index k = 0; k < 512; ++k) {
      const Index block = k / 32, j = k % 32;
      const auto at = static_cast<std::size_t>(row * 512 + k);
      ASSERT_EQ(code_in_two_parts(panel + 576 + block * 384, 2, row, j) - 32, weight.offset[at]);
      const auto factor = load<std::int8_t>(panel + 64 + block * 32 + j / 16 * 16 + row);
      ASSERT_EQ(f16_to_float(load<std::uint16_t>(panel + (k / 256 * 16 + row) * 2)) * factor,
                weight.scale[at]);
    }
  }
}

TEST(PanelLayout, q5_k_and_q5_1_have_one_upper_bit) {
  for (const char* format : {"q5_k", "q5_1"}) {
    const test::TestWeight weight = test::make_weight(format, 16, 512, 2);
    const PackedMatrix packed = pack(weight.stored());
    const Index codes = packed.layout().codes_offset;
    EXPECT_EQ(packed.layout().panel_bytes, codes + 16 * 320);
    for (Index row = 0; row < 16; ++row) {
      for (Index k = 0; k < 512; ++k) {
        const std::byte* block = packed.panel(0) + codes + k / 32 * 320;
        ASSERT_EQ(code_in_two_parts(block, 1, row, k % 32),
                  weight.offset[static_cast<std::size_t>(row * 512 + k)])
            << format;
      }
    }
  }
}

TEST(PanelLayout, rows_beyond_the_matrix_are_zero) {
  for (const char* format : {"f32", "f16", "q8_0", "q4_0", "int4:g32"}) {
    const PackedMatrix packed = pack(test::make_weight(format, 17, 32, 3).stored());
    const PanelLayout& layout = packed.layout();
    const Index scale_bytes = layout.has_codes()              ? (layout.half_scales ? 2 : 4)
                              : layout.kind == PanelKind::F32 ? 4
                                                              : 2;
    for (Index lane = 1; lane < 16; ++lane)  // of codes it is the scale that must be zero
      for (Index byte = 0; byte < scale_bytes; ++byte)
        ASSERT_EQ(packed.panel(1)[lane * scale_bytes + byte], std::byte{0}) << format;
  }
}

TEST(PanelLayout, other_floating_types_become_f32_with_the_same_values) {
  const Values values = random_values(5 * 7, 4);
  std::vector<double> wide(values.begin(), values.end());
  StoredMatrix stored;
  stored.rows = 5;
  stored.cols = 7;
  stored.dtype = Dtype::Float64;
  stored.bytes = std::as_bytes(std::span(wide));
  const PackedMatrix packed = pack(stored);
  EXPECT_EQ(packed.variant(), "f32");
  Values row(7);
  for (Index r = 0; r < 5; ++r) {
    packed.unpack_row(r, row);
    EXPECT_TRUE(std::equal(row.begin(), row.end(), values.begin() + r * 7));
  }
}

TEST(PanelLayout, groups_that_no_integer_kernel_takes_are_decoded) {
  for (const char* format : {"int4:g16", "int8:g48", "int3:g80"}) {
    const test::TestWeight weight = test::make_weight(format, 9, 240, 5);
    const PackedMatrix packed = pack(weight.stored());
    EXPECT_EQ(packed.variant(), "f32") << format;
    EXPECT_FALSE(packed.takes(Act::Int8));
    EXPECT_EQ(packed.preferred_act(), Act::Float32);
    Values got(240), wanted(240);
    for (Index r = 0; r < 9; ++r) {
      packed.unpack_row(r, got);
      decode_row(weight.stored(), r, wanted);
      EXPECT_EQ(got, wanted) << format;
    }
  }
}

// ---- activations

struct Record {
  Values scales = Values(4);
  std::vector<std::int32_t> sums[3], first;
  std::vector<int> codes;  // [row][32]
};

Record record_at(const PackedRows& rows, Index group, Index block) {
  const std::byte* at = rows.data() + group * rows.group_bytes() + block * kInt8Record;
  Record record;
  for (Index r = 0; r < 4; ++r) {
    record.scales[static_cast<std::size_t>(r)] = load<float>(at + kInt8RecordScales + r * 4);
    record.sums[0].push_back(load<std::int16_t>(at + kInt8RecordSums + r * 4));
    record.first.push_back(load<std::int16_t>(at + kInt8RecordSums + r * 4 + 2));
    record.sums[1].push_back(load<std::int32_t>(at + kInt8RecordSums8 + r * 4));
    record.sums[2].push_back(load<std::int32_t>(at + kInt8RecordSums128 + r * 4));
    for (Index j = 0; j < 32; ++j) record.codes.push_back(load<std::int8_t>(at + r * 32 + j));
  }
  return record;
}

TEST(Int8Records, hold_codes_scales_and_the_negative_sums_for_every_zero_point) {
  const Index rows = 8, cols = 96;
  const Values x = random_values(rows * cols, 6, 5);
  PackedRows packed;
  quantize_rows(x.data(), rows, cols, cols, packed, serial_executor());
  for (Index row = 0; row < rows; ++row) {
    for (Index block = 0; block < 3; ++block) {
      const Record record = record_at(packed, row / 4, block);
      const auto r = static_cast<std::size_t>(row % 4);
      const auto begin = x.begin() + row * cols + block * 32;
      const float largest = std::abs(*std::max_element(
          begin, begin + 32, [](float a, float b) { return std::abs(a) < std::abs(b); }));
      EXPECT_EQ(record.scales[r], largest / 127);
      const auto codes = record.codes.begin() + static_cast<Index>(r) * 32;
      const int sum = std::accumulate(codes, codes + 32, 0);
      EXPECT_EQ(record.sums[0][r], -sum);
      EXPECT_EQ(record.first[r], -std::accumulate(codes, codes + 16, 0));
      EXPECT_EQ(record.sums[1][r], -8 * sum);
      EXPECT_EQ(record.sums[2][r], -128 * sum);
      int most = 0;
      for (Index j = 0; j < 32; ++j) {
        most = std::max(most, std::abs(codes[j]));
        // Half a step, and the rounding of x / scale.
        ASSERT_LE(std::abs(begin[j] - record.scales[r] * static_cast<float>(codes[j])),
                  record.scales[r] * 0.50002f);
      }
      EXPECT_EQ(most, 127) << "the largest value uses the whole range";
    }
  }
}

TEST(Int8Records, powers_of_two_and_signs_move_to_the_scale_and_the_codes) {
  const Index cols = 64;
  const Values x = random_values(cols, 7);
  Values scaled = x, mirrored = x;
  for (float& value : scaled) value *= 0x1p40f;
  for (float& value : mirrored) value = -value;
  PackedRows a, b, c;
  quantize_rows(x.data(), 1, cols, cols, a, serial_executor());
  quantize_rows(scaled.data(), 1, cols, cols, b, serial_executor());
  quantize_rows(mirrored.data(), 1, cols, cols, c, serial_executor());
  for (Index block = 0; block < 2; ++block) {
    const Record plain = record_at(a, 0, block), large = record_at(b, 0, block);
    const Record negative = record_at(c, 0, block);
    EXPECT_EQ(large.scales[0], plain.scales[0] * 0x1p40f);
    EXPECT_EQ(negative.scales[0], plain.scales[0]);
    for (std::size_t j = 0; j < 32; ++j) {
      ASSERT_EQ(large.codes[j], plain.codes[j]);
      ASSERT_EQ(negative.codes[j], -plain.codes[j]) << "ties go to even, so signs do not matter";
    }
  }
}

TEST(Int8Records, a_short_last_block_is_padded_with_zero_codes) {
  for (const Index cols : {1, 31, 33, 50}) {
    const Values x(static_cast<std::size_t>(cols), 2.0f);
    PackedRows packed;
    quantize_rows(x.data(), 1, cols, cols, packed, serial_executor());
    const Record record = record_at(packed, 0, (cols - 1) / 32);
    for (Index j = 0; j < 32; ++j)
      EXPECT_EQ(record.codes[static_cast<std::size_t>(j)], j <= (cols - 1) % 32 ? 127 : 0);
    EXPECT_EQ(record.sums[0][0], -127 * ((cols - 1) % 32 + 1));
  }
}

TEST(PackedRowsReuse, a_smaller_shape_after_a_larger_one_holds_its_own_values) {
  PackedRows packed;
  for (const auto& [rows, cols] : {std::pair<Index, Index>{30, 200}, {1, 7}, {5, 64}, {1, 300}}) {
    const Values x = random_values(rows * cols, 8);
    interleave_rows(x.data(), rows, cols, cols, packed, serial_executor());
    EXPECT_EQ(packed.act(), Act::Float32);
    Values row(static_cast<std::size_t>(cols));
    for (Index r = 0; r < rows; ++r) {
      packed.unpack_row(r, row);
      ASSERT_TRUE(std::equal(row.begin(), row.end(), x.begin() + r * cols));
    }
    quantize_rows(x.data(), rows, cols, cols, packed, serial_executor());
    EXPECT_EQ(packed.act(), Act::Int8);
    EXPECT_EQ(packed.rows(), rows);
    EXPECT_EQ(packed.cols(), cols);
    packed.unpack_row(rows - 1, row);
    for (Index k = 0; k < cols; ++k)
      ASSERT_NEAR(row[k], x[static_cast<std::size_t>((rows - 1) * cols + k)], 0.5001 / 127);
  }
}

TEST(PackedRowsThreads, any_number_of_them_packs_the_same_bytes) {
  const Index rows = 300, cols = 1000;
  const Values x = random_values(rows * cols, 9);
  for (const auto pack : {quantize_rows, interleave_rows}) {
    PackedRows one, many;
    ThreadPool pool(4);
    pack(x.data(), rows, cols, cols, one, serial_executor());
    pack(x.data(), rows, cols, cols, many, pool);
    const auto bytes = static_cast<std::size_t>(rows / 4 * one.group_bytes());
    EXPECT_EQ(std::memcmp(one.data(), many.data(), bytes), 0);
  }
}

}  // namespace
}  // namespace hone::kernels
