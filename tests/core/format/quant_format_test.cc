// SPDX-License-Identifier: Apache-2.0
#include "hone/core/format/quant_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/error.h"
#include "hone/core/philox.h"

namespace hone {
namespace {

using testing::HasSubstr;

template <class Body>
void expect_error(ErrorCategory category, const std::string& text, Body body) {
  try {
    body();
    ADD_FAILURE() << "no error about " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), category);
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST(QuantSpec, text_and_parse_are_inverse) {
  for (const std::string text :
       {"float", "int8:row", "int8:tensor", "int4:g32:asym", "int4:g128:sym", "int3:g64:asym",
        "int2:g16:asym", "int8:g32:sym", "int8:row:asym", "int4:row", "int5:g32:asym",
        "int4:g32:asym:f32", "int8:row:f16", "int6:tensor:asym:bf16"}) {
    EXPECT_EQ(to_text(parse_quant_spec(text)), text);
  }
}

TEST(QuantSpec, parts_left_out_have_defaults) {
  const QuantSpec grouped = parse_quant_spec("int4:g128");
  EXPECT_FALSE(grouped.symmetric);
  EXPECT_EQ(grouped.scale_dtype, Dtype::Float16);
  const QuantSpec row = parse_quant_spec("int8:row");
  EXPECT_TRUE(row.symmetric);
  EXPECT_EQ(row.scale_dtype, Dtype::Float32);
  EXPECT_TRUE(parse_quant_spec("int8:g32").symmetric);
  EXPECT_TRUE(parse_quant_spec("int4:row").symmetric);
}

TEST(QuantSpec, refuses_everything_else_and_names_the_legal_forms) {
  for (const std::string text :
       {"", "int", "int8", "int1:row", "int9:row", "int4:g", "int4:g0", "int4:g24", "int4:g-32",
        "int4:col", "int4:g32:both", "int4:g32:", "int8:row:f64", "int4x:g32", "float:row",
        "int4:g99999999999999999999"}) {
    expect_error(ErrorCategory::InvalidArgument, "int<2-8>", [&] { parse_quant_spec(text); });
  }
}

TEST(QuantSpec, counts_bits_with_scales_zeros_and_padding) {
  EXPECT_DOUBLE_EQ(parse_quant_spec("int4:g128:sym:f16").bits_per_weight(8, 1024), 4.125);
  EXPECT_DOUBLE_EQ(parse_quant_spec("int4:g128:asym").bits_per_weight(8, 1024), 4.1875);
  EXPECT_DOUBLE_EQ(parse_quant_spec("int4:g32:sym:f16").bits_per_weight(8, 1024), 4.5);
  EXPECT_DOUBLE_EQ(parse_quant_spec("int8:row").bits_per_weight(4, 64), 8.5);
  EXPECT_DOUBLE_EQ(parse_quant_spec("int8:tensor").bits_per_weight(4, 8), 9.0);
  // 40 columns are two groups of 32: 2 * 16 code bytes, 2 scales, 2 zeros a row.
  EXPECT_DOUBLE_EQ(parse_quant_spec("int4:g32:asym").bits_per_weight(1, 40), 8.0 * 38 / 40);
}

// Bit by bit: code i lies in bits [i*b, (i+1)*b) of its group's stream.
int slow_code(const std::vector<std::byte>& codes, const QuantSpec& spec, Index cols, Index row,
              Index col) {
  const Index group = spec.group_size(cols), group_bytes = (group * spec.bits + 7) / 8;
  const Index at = row * spec.code_bytes_per_row(cols) + col / group * group_bytes;
  int code = 0;
  for (int bit = 0; bit < spec.bits; ++bit) {
    const Index position = at * 8 + col % group * spec.bits + bit;
    const int byte = std::to_integer<int>(codes[static_cast<std::size_t>(position / 8)]);
    code |= ((byte >> (position % 8)) & 1) << bit;
  }
  return code;
}

struct RandomMatrix {
  QuantSpec spec;
  Index rows, cols;
  std::vector<std::byte> codes, scales, zeros;

  RandomMatrix(const std::string& text, Index rows_in, Index cols_in)
      : spec(parse_quant_spec(text)), rows(rows_in), cols(cols_in) {
    PhiloxStream random(17);
    const Index groups = spec.span == ScaleSpan::Tensor ? 1 : rows * spec.groups_per_row(cols);
    codes.resize(static_cast<std::size_t>(rows * spec.code_bytes_per_row(cols)));
    for (std::byte& byte : codes) byte = static_cast<std::byte>(random() & 255);
    for (Index g = 0; g < groups; ++g) {
      const float scale = random.uniform();
      const std::uint16_t half =
          spec.scale_dtype == Dtype::Float16 ? float_to_f16(scale) : float_to_bf16(scale);
      const auto at = scales.size();
      scales.resize(at + static_cast<std::size_t>(bytes_of(spec.scale_dtype)));
      if (spec.scale_dtype == Dtype::Float32) {
        std::memcpy(scales.data() + at, &scale, 4);
      } else {
        std::memcpy(scales.data() + at, &half, 2);
      }
      if (!spec.symmetric) {
        zeros.push_back(static_cast<std::byte>(random.below(1u << spec.bits)));
      }
    }
  }
  StoredMatrix stored() const {
    StoredMatrix matrix;
    matrix.layout = WeightLayout::Canonical;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.quant = {spec, rows, cols, codes, scales, zeros};
    return matrix;
  }
};

TEST(QuantFormat, decodes_as_the_slow_decoder_does) {
  for (int bits = 2; bits <= 8; ++bits) {
    for (const std::string span : {":row", ":tensor", ":g16", ":g32:asym", ":g64:sym", ":g128"}) {
      for (const Index cols : {1, 15, 16, 17, 127, 128, 1000}) {
        const RandomMatrix matrix("int" + std::to_string(bits) + span, 3, cols);
        const StoredMatrix stored = matrix.stored();
        std::vector<float> got(static_cast<std::size_t>(3 * cols));
        decode(stored, got);
        for (Index i = 0; i < 3 * cols; ++i) {
          const Index row = i / cols, col = i % cols, group = col / matrix.spec.group_size(cols);
          int code = slow_code(matrix.codes, matrix.spec, cols, row, col);
          if (matrix.spec.symmetric && code >= 1 << (bits - 1)) code -= 1 << bits;
          const float wanted = stored.quant.scale_at(row, group) *
                               static_cast<float>(code - stored.quant.zero_at(row, group));
          ASSERT_EQ(got[static_cast<std::size_t>(i)], wanted) << bits << span << " " << i;
        }
      }
    }
  }
}

TEST(QuantFormat, packing_and_unpacking_codes_is_exact) {
  PhiloxStream random(3);
  for (int bits = 2; bits <= 8; ++bits) {
    for (const std::size_t count : {1u, 15u, 16u, 17u, 127u, 1000u}) {
      std::vector<std::uint8_t> codes(count), got(count);
      for (auto& code : codes) code = static_cast<std::uint8_t>(random.below(1u << bits));
      std::vector<std::byte> bytes((count * static_cast<std::size_t>(bits) + 7) / 8);
      pack_codes(codes, bits, bytes);
      unpack_codes(bytes, bits, got);
      EXPECT_EQ(got, codes) << bits << " bits, " << count;
    }
  }
  std::vector<std::byte> byte(1);
  pack_codes(std::vector<std::uint8_t>{3, 12}, 4, byte);  // low nibble first
  EXPECT_EQ(byte[0], std::byte{0xc3});
}

StoredMatrix dense(Dtype dtype, std::span<const std::byte> bytes, Index rows, Index cols) {
  StoredMatrix matrix;
  matrix.dtype = dtype;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.bytes = bytes;
  return matrix;
}

TEST(QuantFormat, decodes_every_dense_type) {
  const std::vector<double> wide{1.5, -2.25};
  std::vector<float> out(2);
  decode(dense(Dtype::Float64, std::as_bytes(std::span(wide)), 1, 2), out);
  EXPECT_EQ(out, (std::vector<float>{1.5f, -2.25f}));
  const std::vector<std::uint16_t> halves{float_to_f16(0.1f), 0x0001};
  decode(dense(Dtype::Float16, std::as_bytes(std::span(halves)), 1, 2), out);
  EXPECT_EQ(out, (std::vector<float>{f16_to_float(halves[0]), 0x1p-24f}));
  const std::vector<std::uint16_t> brains{float_to_bf16(0.1f), 0xff80};
  decode(dense(Dtype::BFloat16, std::as_bytes(std::span(brains)), 1, 2), out);
  EXPECT_EQ(out[1], -std::numeric_limits<float>::infinity());
  // e4m3: 1.0, largest 448, smallest 2^-9, -2; e5m2: 1.0, infinity.
  const std::vector<std::uint8_t> eights{0x38, 0x7e, 0x01, 0xc0};
  std::vector<float> four(4);
  decode(dense(Dtype::Float8E4M3, std::as_bytes(std::span(eights)), 1, 4), four);
  EXPECT_EQ(four, (std::vector<float>{1.0f, 448.0f, 0x1p-9f, -2.0f}));
  const std::vector<std::uint8_t> fives{0x3c, 0x7c};
  decode(dense(Dtype::Float8E5M2, std::as_bytes(std::span(fives)), 1, 2), out);
  EXPECT_EQ(out, (std::vector<float>{1.0f, std::numeric_limits<float>::infinity()}));
  const std::vector<std::uint8_t> nan{0x7f, 0xff};
  decode(dense(Dtype::Float8E4M3, std::as_bytes(std::span(nan)), 1, 2), out);
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
}

TEST(QuantFormat, reads_unaligned_bytes) {
  const std::vector<float> values{1, 2, 3};
  std::vector<std::byte> shifted(13);
  std::memcpy(shifted.data() + 1, values.data(), 12);
  std::vector<float> out(3);
  decode(dense(Dtype::Float32, std::span(shifted).subspan(1), 1, 3), out);
  EXPECT_EQ(out, values);
}

// x[i] = ((7919 i + 13) mod 2001 - 1000) / 500; the second block times -0.001. Blocks as written by
// the gguf Python package (0.19, quants.quantize).
std::vector<float> golden_values() {
  std::vector<float> values(64);
  for (int i = 0; i < 64; ++i) {
    const float x = static_cast<float>((i * 7919 + 13) % 2001 - 1000) / 500.0f;
    values[static_cast<std::size_t>(i)] = i < 32 ? x : x * -0.001f;
  }
  return values;
}

std::vector<int> as_numbers(const std::vector<std::byte>& bytes) {
  std::vector<int> numbers;
  for (const std::byte byte : bytes) numbers.push_back(std::to_integer<int>(byte));
  return numbers;
}

TEST(GgufEncoders, encoders_write_the_reference_bytes) {
  const std::vector<int> q8{245, 35,  129, 120, 109, 98,  87,  76,  65,  54,  43,  32,  21,  10,
                            255, 244, 233, 222, 211, 201, 190, 179, 168, 157, 146, 135, 125, 115,
                            104, 93,  82,  71,  60,  49,  3,   1,   218, 229, 240, 251, 6,   17,
                            28,  39,  50,  61,  72,  83,  94,  105, 116, 127, 135, 146, 157, 168,
                            179, 190, 201, 212, 223, 234, 245, 0,   11,  22,  33,  44};
  const std::vector<int> q4{229, 51,  80,  95,  79,  62,  45,  45,  28,  11,  251, 250,
                            249, 233, 216, 199, 199, 182, 4,   140, 250, 250, 233, 232,
                            216, 199, 182, 182, 165, 148, 147, 131, 114, 113, 97,  80};
  std::vector<std::byte> eight(68), four(36);
  encode_q8_0(golden_values(), eight);
  encode_q4_0(golden_values(), four);
  EXPECT_EQ(as_numbers(eight), q8);
  EXPECT_EQ(as_numbers(four), q4);
}

StoredMatrix blocks(GgufType type, std::span<const std::byte> bytes, Index rows, Index cols) {
  StoredMatrix matrix;
  matrix.layout = WeightLayout::GgufBlocks;
  matrix.block_type = type;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.bytes = bytes;
  return matrix;
}

TEST(GgufEncoders, decoding_an_encoded_block_is_within_half_a_step) {
  PhiloxStream random(5);
  std::vector<float> values(32 * 3000), got(values.size());
  for (float& value : values) value = 2 * random.uniform() - 1;
  std::vector<std::byte> eight(3000 * 34), four(3000 * 18);
  encode_q8_0(values, eight);
  decode(blocks(GgufType::Q8_0, eight, 3, 32000), got);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(got[i], values[i], 0.51f / 127 + 0x1p-11f) << i;
  }
  encode_q4_0(values, four);
  decode(blocks(GgufType::Q4_0, four, 3, 32000), got);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(got[i], values[i], 1.001f / 8) << i;  // the far end clips by up to one step
  }
}

TEST(GgufEncoders, zero_tiny_and_infinite_blocks_have_defined_codes) {
  std::vector<float> values(96, 0.0f);
  values[32] = std::numeric_limits<float>::denorm_min();
  values[64] = std::numeric_limits<float>::infinity();
  std::vector<std::byte> eight(3 * 34), four(3 * 18);
  encode_q8_0(values, eight);
  encode_q4_0(values, four);
  std::vector<float> got(96);
  decode(blocks(GgufType::Q8_0, eight, 1, 96), got);
  EXPECT_TRUE(std::all_of(got.begin(), got.begin() + 64, [](float v) { return v == 0; }));
  decode(blocks(GgufType::Q4_0, four, 1, 96), got);
  EXPECT_TRUE(std::all_of(got.begin(), got.begin() + 64, [](float v) { return v == 0; }));
  // Infinity over infinity has code 0, and the scale is infinite.
  std::vector<int> q8(34, 0), q4(18, 0x88);
  q8[1] = 0x7c;
  q4[0] = 0, q4[1] = 0xfc, q4[2] = 0x80;
  const auto numbers = [](std::span<const std::byte> bytes) {
    std::vector<int> out;
    for (const std::byte byte : bytes) out.push_back(std::to_integer<int>(byte));
    return out;
  };
  EXPECT_EQ(numbers(std::span(eight).last(34)), q8);
  EXPECT_EQ(numbers(std::span(four).last(18)), q4);
}

TEST(GgufEncoders, refuses_sizes_that_are_not_whole_blocks) {
  const std::vector<float> values(33);
  std::vector<std::byte> bytes(68);
  expect_error(ErrorCategory::InvalidArgument, "multiple of 32",
               [&] { encode_q8_0(values, bytes); });
  expect_error(ErrorCategory::InvalidArgument, "34 bytes",
               [&] { encode_q8_0(std::span(values).first(32), bytes); });
  std::vector<float> out(33);
  expect_error(ErrorCategory::InvalidArgument, "divisible by 32",
               [&] { decode(blocks(GgufType::Q8_0, bytes, 1, 33), out); });
}

TEST(GgufEncoders, names_the_tensor_of_a_type_that_is_not_read) {
  EXPECT_EQ(gguf_type_info(8, "w").bytes, 34);
  EXPECT_EQ(gguf_type_info(14, "w").block, 256);
  for (const std::uint32_t type : {4u, 5u, 31u, 33u, 36u, 38u, 39u, 4000000000u}) {
    expect_error(ErrorCategory::Unsupported, "blk.0.attn_q",
                 [&] { gguf_type_info(type, "blk.0.attn_q"); });
  }
}

TEST(QuantFormat, refuses_views_whose_spans_do_not_fit) {
  RandomMatrix matrix("int4:g32:asym", 3, 64);
  std::vector<float> row(64);
  EXPECT_NO_THROW(decode_row(matrix.stored(), 2, row));
  expect_error(ErrorCategory::InvalidArgument, "below 3",
               [&] { decode_row(matrix.stored(), 3, row); });
  expect_error(ErrorCategory::InvalidArgument, "64 values",
               [&] { decode_row(matrix.stored(), 0, std::span(row).first(63)); });
  StoredMatrix truncated = matrix.stored();
  truncated.quant.scales = truncated.quant.scales.first(10);
  expect_error(ErrorCategory::InvalidArgument, "scales", [&] { decode_row(truncated, 0, row); });
  StoredMatrix short_codes = matrix.stored();
  short_codes.quant.codes = short_codes.quant.codes.first(95);
  expect_error(ErrorCategory::InvalidArgument, "codes", [&] { decode_row(short_codes, 0, row); });
  const std::vector<std::byte> bytes(255);
  expect_error(ErrorCategory::InvalidArgument, "1 rows of 256",
               [&] { decode_row(dense(Dtype::Float32, bytes, 1, 64), 0, row); });
}

TEST(StoredMatrix, counts_its_bytes) {
  const RandomMatrix matrix("int4:g32:asym", 3, 64);
  EXPECT_EQ(matrix.stored().stored_bytes(), 3 * (32 + 2 * 2 + 2));
  const std::vector<std::byte> bytes(34);
  EXPECT_EQ(blocks(GgufType::Q8_0, bytes, 1, 32).stored_bytes(), 34);
}

}  // namespace
}  // namespace hone
