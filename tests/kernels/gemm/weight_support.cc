// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/gemm/weight_support.h"

#include <algorithm>
#include <cstring>

#include "hone/core/bf16.h"
#include "hone/core/check.h"

namespace hone::kernels::test {
namespace {

template <class T>
void append(std::vector<std::byte>& to, T value) {
  const auto at = to.size();
  to.resize(at + sizeof value);
  std::memcpy(to.data() + at, &value, sizeof value);
}

void append_scale(std::vector<std::byte>& to, float value, Dtype dtype) {
  if (dtype == Dtype::Float32) return append(to, value);
  append(to, dtype == Dtype::Float16 ? float_to_f16(value) : float_to_bf16(value));
}

float round_scale(float value, Dtype dtype) {
  if (dtype == Dtype::Float32) return value;
  return dtype == Dtype::Float16 ? f16_to_float(float_to_f16(value))
                                 : bf16_to_float(float_to_bf16(value));
}

float draw_scale(PhiloxStream& random, Fill fill, Dtype dtype) {
  const float drawn = 0.001f + 0.01f * random.uniform();
  switch (fill) {
    case Fill::ZeroScale:
      return 0.0f;
    case Fill::NegativeScale:
      return round_scale(-drawn, dtype);
    case Fill::SubnormalScale:
      return dtype == Dtype::Float16 ? 0x1p-24f * 3 : 0x1p-135f;
    default:
      return round_scale(drawn, dtype);
  }
}

int draw_code(PhiloxStream& random, Fill fill, int lowest, int highest) {
  if (fill == Fill::AllLowest) return lowest;
  if (fill == Fill::AllHighest) return highest;
  return lowest + static_cast<int>(random.below(static_cast<std::uint32_t>(highest - lowest + 1)));
}

void make_dense(TestWeight& weight, PhiloxStream& random) {
  for (Index i = 0; i < weight.rows * weight.cols; ++i) {
    const float value = 2 * random.uniform() - 1;
    if (weight.format == "f32") append(weight.bytes, value);
    if (weight.format == "f16") append(weight.bytes, float_to_f16(value));
    if (weight.format == "bf16") append(weight.bytes, float_to_bf16(value));
  }
}

void make_gguf(TestWeight& weight, PhiloxStream& random, Fill fill) {
  const bool eight = weight.format == "q8_0";
  for (Index block = 0; block < weight.rows * weight.cols / 32; ++block) {
    const float scale = draw_scale(random, fill, Dtype::Float16);
    append(weight.bytes, float_to_f16(scale));
    int code[32];
    for (int& c : code)
      c = eight ? draw_code(random, fill, -128, 127) : draw_code(random, fill, -8, 7);
    for (int j = 0; j < (eight ? 32 : 16); ++j) {
      append(weight.bytes, static_cast<std::uint8_t>(
                               eight ? code[j] : (code[j] + 8) | ((code[j + 16] + 8) << 4)));
    }
    weight.offset.insert(weight.offset.end(), code, code + 32);
    weight.scale.insert(weight.scale.end(), 32, scale);
  }
}

// One block of a type with minimums, fifth bits or sub-blocks, before it is written.
struct Parts {
  std::vector<std::uint8_t> codes;  // unsigned, as stored
  std::vector<int> scales, mins;    // of the sub-blocks of Q4_K, Q5_K and Q6_K
  std::uint16_t d = 0, m = 0;       // bits of f16
};

void append_halves(std::vector<std::byte>& to, const Parts& parts, bool minimum) {
  append(to, parts.d);
  if (minimum) append(to, parts.m);
}

// Byte j of `count` bytes has element first + j in its low half, first + count + j in its high one.
void append_nibbles(std::vector<std::byte>& to, const Parts& parts, std::size_t first,
                    std::size_t count) {
  for (std::size_t j = first; j < first + count; ++j) {
    append(to,
           static_cast<std::uint8_t>((parts.codes[j] & 15) | (parts.codes[j + count] & 15) << 4));
  }
}

void append_short_block(std::vector<std::byte>& to, const Parts& parts, bool minimum, bool fifth) {
  append_halves(to, parts, minimum);
  std::uint32_t high = 0;
  for (std::size_t j = 0; j < 32; ++j) high |= std::uint32_t{parts.codes[j]} >> 4 << j;
  if (fifth) append(to, high);
  append_nibbles(to, parts, 0, 16);
}

// Six-bit scales and minimums as quantize_row_q4_K_ref writes them: the first four with the top
// bits of the others above them, then the low bits of the others.
void append_six_bit_scales(std::vector<std::byte>& to, const Parts& parts) {
  std::uint8_t bytes[12] = {};
  for (std::size_t j = 0; j < 8; ++j) {
    const int scale = parts.scales[j], minimum = parts.mins[j];
    if (j < 4) {
      bytes[j] = static_cast<std::uint8_t>(scale);
      bytes[j + 4] = static_cast<std::uint8_t>(minimum);
    } else {
      bytes[j + 4] = static_cast<std::uint8_t>((scale & 15) | (minimum & 15) << 4);
      bytes[j - 4] |= static_cast<std::uint8_t>(scale >> 4 << 6);
      bytes[j] |= static_cast<std::uint8_t>(minimum >> 4 << 6);
    }
  }
  for (const std::uint8_t byte : bytes) append(to, byte);
}

void append_q4_k(std::vector<std::byte>& to, const Parts& parts, bool fifth) {
  append_halves(to, parts, true);
  append_six_bit_scales(to, parts);
  std::uint8_t high[32] = {};
  for (std::size_t i = 0; i < 256; ++i)
    high[i % 32] |= static_cast<std::uint8_t>(parts.codes[i] >> 4 << i / 32);
  if (fifth)
    for (const std::uint8_t byte : high) append(to, byte);
  for (std::size_t first = 0; first < 256; first += 64) append_nibbles(to, parts, first, 32);
}

void append_q6_k(std::vector<std::byte>& to, const Parts& parts) {
  std::uint8_t high[64] = {};
  for (std::size_t i = 0; i < 256; ++i)
    high[i / 128 * 32 + i % 32] |=
        static_cast<std::uint8_t>(parts.codes[i] >> 4 << (2 * (i % 128 / 32)));
  for (const std::size_t half : {0, 128}) append_nibbles(to, parts, half, 64);
  for (const std::uint8_t byte : high) append(to, byte);
  for (const int scale : parts.scales) append(to, static_cast<std::int8_t>(scale));
  append(to, parts.d);
}

void append_parts(std::vector<std::byte>& to, const std::string& format, const Parts& parts) {
  if (format == "q4_k" || format == "q5_k") return append_q4_k(to, parts, format == "q5_k");
  if (format == "q6_k") return append_q6_k(to, parts);
  append_short_block(to, parts, format != "q5_0", format != "q4_1");
}

// The block's integers and scales per element, in the terms of TestWeight.
void note_parts(TestWeight& weight, const Parts& parts, int zero) {
  const float d = f16_to_float(parts.d), m = f16_to_float(parts.m);
  const bool added = weight.format == "q4_1" || weight.format == "q5_1";
  const std::size_t subs = std::max<std::size_t>(1, parts.scales.size());
  for (std::size_t i = 0; i < parts.codes.size(); ++i) {
    const std::size_t sub = i / (parts.codes.size() / subs);
    weight.offset.push_back(parts.codes[i] - zero);
    weight.scale.push_back(parts.scales.empty() ? d : d * static_cast<float>(parts.scales[sub]));
    if (added) weight.minimum.push_back(-m);
    if (!parts.mins.empty()) weight.minimum.push_back(m * static_cast<float>(parts.mins[sub]));
  }
}

void make_parts(TestWeight& weight, PhiloxStream& random, Fill fill) {
  const bool six = weight.format == "q6_k", sub_blocks = block_of(weight.format) == 256;
  const bool four = weight.format.starts_with("q4");
  const int zero = six ? 32 : weight.format == "q5_0" ? 16 : 0, top = six ? 63 : four ? 15 : 31;
  for (Index block = 0; block < weight.rows * weight.cols / block_of(weight.format); ++block) {
    Parts parts;
    parts.d = float_to_f16(draw_scale(random, fill, Dtype::Float16));
    parts.m = float_to_f16(draw_scale(random, fill, Dtype::Float16));
    for (Index i = 0; i < block_of(weight.format); ++i)
      parts.codes.push_back(static_cast<std::uint8_t>(draw_code(random, fill, 0, top)));
    for (int i = 0; sub_blocks && i < (six ? 16 : 8); ++i) {
      parts.scales.push_back(six ? draw_code(random, fill, -128, 127)
                                 : draw_code(random, fill, 0, 63));
      if (!six) parts.mins.push_back(draw_code(random, fill, 0, 63));
    }
    append_parts(weight.bytes, weight.format, parts);
    note_parts(weight, parts, zero);
  }
}

void make_canonical(TestWeight& weight, PhiloxStream& random, Fill fill) {
  const QuantSpec spec = parse_quant_spec(weight.format);
  const Index group = spec.group_size(weight.cols), groups = spec.groups_per_row(weight.cols);
  const auto group_bytes = static_cast<std::size_t>((group * spec.bits + 7) / 8);
  const int half = 1 << (spec.bits - 1), top = 2 * half - 1;
  float scale = draw_scale(random, fill, spec.scale_dtype);
  int zero = static_cast<int>(random.below(static_cast<std::uint32_t>(top + 1)));
  if (spec.span == ScaleSpan::Tensor) append_scale(weight.scales, scale, spec.scale_dtype);
  for (Index g = 0; g < weight.rows * groups; ++g) {
    if (spec.span != ScaleSpan::Tensor) {
      scale = draw_scale(random, fill, spec.scale_dtype);
      append_scale(weight.scales, scale, spec.scale_dtype);
      zero = static_cast<int>(random.below(static_cast<std::uint32_t>(top + 1)));
      if (!spec.symmetric) append(weight.zeros, static_cast<std::uint8_t>(zero));
    }
    const Index count = std::min(group, weight.cols - g % groups * group);
    std::vector<std::uint8_t> raw(static_cast<std::size_t>(group));
    for (Index i = 0; i < count; ++i) {
      const int code = spec.symmetric ? draw_code(random, fill, -half, half - 1)
                                      : draw_code(random, fill, 0, top);
      raw[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(code & top);
      weight.offset.push_back(spec.symmetric ? code : code - zero);
      weight.scale.push_back(scale);
    }
    const auto at = weight.codes.size();
    weight.codes.resize(at + group_bytes);
    pack_codes(raw, spec.bits, std::span(weight.codes).subspan(at));
  }
}

bool is_gguf(const std::string& format) { return format.starts_with("q"); }

GgufType gguf_type_of(const std::string& format) {
  constexpr std::pair<std::string_view, GgufType> kTypes[] = {
      {"q8_0", GgufType::Q8_0}, {"q4_0", GgufType::Q4_0}, {"q4_1", GgufType::Q4_1},
      {"q5_0", GgufType::Q5_0}, {"q5_1", GgufType::Q5_1}, {"q4_k", GgufType::Q4_K},
      {"q5_k", GgufType::Q5_K}, {"q6_k", GgufType::Q6_K}};
  for (const auto& [name, type] : kTypes) {
    if (name == format) return type;
  }
  fail_argument("test weight", "a GGUF type", format);
}

}  // namespace

Index block_of(const std::string& format) {
  if (!is_gguf(format)) return 1;
  return gguf_type_info(static_cast<std::uint32_t>(gguf_type_of(format)), format).block;
}

Index fitting_cols(const std::string& format, Index cols) {
  return round_up(cols, block_of(format));
}

StoredMatrix TestWeight::stored() const {
  StoredMatrix matrix;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.bytes = bytes;
  if (format == "f32" || format == "f16" || format == "bf16") {
    matrix.dtype = format == "f32"   ? Dtype::Float32
                   : format == "f16" ? Dtype::Float16
                                     : Dtype::BFloat16;
  } else if (is_gguf(format)) {
    matrix.layout = WeightLayout::GgufBlocks;
    matrix.block_type = gguf_type_of(format);
  } else {
    matrix.layout = WeightLayout::Canonical;
    matrix.quant = {parse_quant_spec(format), rows, cols, codes, scales, zeros};
  }
  return matrix;
}

TestWeight make_weight(const std::string& format, Index rows, Index cols, std::uint64_t seed,
                       Fill fill) {
  TestWeight weight;
  weight.format = format;
  weight.rows = rows;
  weight.cols = cols;
  PhiloxStream random(seed);
  if (format == "q8_0" || format == "q4_0") {
    make_gguf(weight, random, fill);
  } else if (is_gguf(format)) {
    make_parts(weight, random, fill);
  } else if (format.starts_with("int")) {
    make_canonical(weight, random, fill);
  } else {
    make_dense(weight, random);
  }
  return weight;
}

std::vector<float> random_floats(Index count, std::uint64_t seed, float amplitude) {
  PhiloxStream random(seed, 1);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = amplitude * (2 * random.uniform() - 1);
  return values;
}

TileArgs whole_tile(const PackedMatrix& weight, const PackedRows& x) {
  return {.layout = &weight.layout(),
          .panels = weight.panel(0),
          .panel_count = weight.panels(),
          .x = x.data(),
          .x_group_bytes = x.group_bytes(),
          .single_row = x.act() == Act::Float32 && x.rows() == 1,
          .rows = x.rows(),
          .k_begin = 0,
          .k_end = weight.cols(),
          .out = nullptr,
          .out_stride = weight.panels() * kPanelRows,
          .accumulate = false,
          .panel_by_panel = false};
}

}  // namespace hone::kernels::test
