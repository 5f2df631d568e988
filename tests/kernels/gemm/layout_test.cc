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
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/gemm/packed_matrix.h"
#include "hone/kernels/gemm/packed_rows.h"
#include "tests/kernels/gemm/weight_support.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::make_weight, test::random_values, test::TestWeight;
using Values = std::vector<float>;

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

float half_at(const std::byte* values, Index at) {
  return f16_to_float(load<std::uint16_t>(values + at * 2));
}

// Where the parts of panels of 16 rows of a format lie, by numbers that the test knows.
struct Places {
  const char* format;
  Index cols, panel_bytes;
  Index blocks, record_bytes;         // of a group
  Index zeros, factors, codes;        // in a record; 0 if it has none
  Index scale_bytes, code_bytes = 0;  // of 16 rows; of a block of 32 columns
  int zero = 0;                       // of symmetric codes
};

std::vector<Places> places() {
  return {
      {"q8_0", 64, 1088, 1, 544, 0, 0, 32, 32, 512, 128},
      {"q4_0", 96, 896, 1, 288, 0, 0, 32, 32, 256, 8},  // 864, padded to 64
      {"q5_0", 64, 1088, 1, 544, 0, 0, 32, 32, 512, 128},
      {"q4_1", 64, 640, 1, 320, 0, 0, 64, 32, 256},
      {"q5_1", 64, 768, 1, 384, 0, 0, 64, 32, 320},
      {"q4_k", 512, 4736, 8, 2368, 0, 64, 320, 32, 256},
      {"q5_k", 512, 5760, 8, 2880, 0, 64, 320, 32, 320},
      {"q6_k", 512, 6720, 8, 3360, 0, 32, 288, 32, 384, 32},
      {"int4:g32:sym:f16", 128, 1152, 1, 288, 0, 0, 32, 32, 256, 8},
      {"int4:g32:sym:f32", 128, 1280, 1, 320, 0, 0, 64, 64, 256, 8},
      {"int8:g32:sym:f32", 128, 2304, 1, 576, 0, 0, 64, 64, 512, 128},
      {"int4:g32:asym:f16", 128, 1216, 1, 304, 32, 0, 48, 32, 256},
      {"int8:g64:asym:f32", 128, 2240, 2, 1104, 64, 0, 80, 64, 512},  // 2208, padded
      {"int4:g96:sym:f16", 256, 2176, 3, 800, 0, 0, 32, 32, 256,
       8},  // the last group has two blocks
      {"int3:g128:asym:f16", 96, 832, 4, 1072, 32, 0, 48, 32, 256},  // the only group has three
      {"int4:g128:sym:f16", 256, 2112, 4, 1056, 0, 0, 32, 32, 256, 8},
      {"int8:g64:sym:f16", 128, 2112, 2, 1056, 0, 0, 32, 32, 512, 128},
      {"int8:g128:asym:f16", 256, 4224, 4, 2096, 32, 0, 48, 32, 512},  // 4192, padded
      {"int8:row", 128, 2112, 4, 2112, 0, 0, 64, 64, 512, 128},
  };
}

// The code of column j of the block at `block`.
int code_at(const Places& at, const std::byte* block, Index row, Index j) {
  const Index quad = j / 4, byte = row * 4 + j % 4;
  if (at.code_bytes == 512) return load<std::uint8_t>(block + quad * 64 + byte);
  const int pair = load<std::uint8_t>(block + quad % 4 * 64 + byte);
  const int code = j < 16 ? pair & 15 : pair >> 4;
  const Index bits = (at.code_bytes - 256) / 64;
  if (bits == 0) return code;
  const int upper = load<std::uint8_t>(block + 256 + quad % bits * 64 + byte);
  return code + 16 * (upper >> quad / bits * bits & ((1 << bits) - 1));
}

TEST(PanelLayout, each_group_is_a_record_of_scales_zero_points_factors_and_codes) {
  for (const Places& at : places()) {
    const TestWeight weight = make_weight(at.format, 16, at.cols, 4);
    const PackedMatrix packed = pack(weight.stored());
    EXPECT_EQ(packed.layout().panel_bytes, at.panel_bytes) << at.format;
    for (Index row = 0; row < 16; ++row) {
      for (Index k = 0; k < at.cols; ++k) {
        const auto i = static_cast<std::size_t>(row * at.cols + k);
        const Index block = k / 32, j = k % 32;
        const std::byte* const record = packed.panel(0) + block / at.blocks * at.record_bytes;
        const std::byte* const codes = record + at.codes + block % at.blocks * at.code_bytes;
        const int zero = at.zeros == 0 ? at.zero : load<std::uint8_t>(record + at.zeros + row);
        ASSERT_EQ(code_at(at, codes, row, j) - zero, weight.offset[i])
            << at.format << " " << row << " " << k;
        float scale = at.scale_bytes == 32 ? half_at(record, row) : load<float>(record + row * 4);
        float minimum = half_at(record + 32, row);
        if (at.factors != 0) {
          const std::byte* const factors = record + at.factors + block % at.blocks * 32 + row;
          const int factor = at.zero == 32 ? int{load<std::int8_t>(factors + j / 16 * 16)}
                                           : int{load<std::uint8_t>(factors)};
          scale *= static_cast<float>(factor);
          minimum *= load<std::uint8_t>(factors + 16);
        }
        ASSERT_EQ(scale, weight.scale[i]) << at.format << " " << row << " " << k;
        if (weight.minimum.empty()) continue;
        ASSERT_EQ(minimum, weight.minimum[i]) << at.format << " " << row << " " << k;
      }
    }
  }
}

TEST(PanelLayout, row_r_is_lane_r_mod_16_of_panel_r_div_16) {
  const TestWeight weight = make_weight("q8_0", 18, 32, 1);
  const PackedMatrix packed = pack(weight.stored());
  EXPECT_EQ(packed.panels(), 2);
  for (Index row = 0; row < 18; ++row) {
    EXPECT_EQ(half_at(packed.panel(row / 16), row % 16),
              weight.scale[static_cast<std::size_t>(row * 32)]);
  }
}

TEST(PanelLayout, rows_beyond_the_matrix_are_zero) {
  for (const char* format : {"f32", "f16", "q8_0", "q4_0", "int4:g32"}) {
    const PackedMatrix packed = pack(make_weight(format, 17, 32, 3).stored());
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
    const TestWeight weight = make_weight(format, 9, 240, 5);
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
