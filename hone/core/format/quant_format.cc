// SPDX-License-Identifier: Apache-2.0
#include "hone/core/format/quant_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/check.h"

namespace hone {
namespace {

constexpr std::string_view kLegalSpecs =
    "float, int<2-8>:<row|tensor|gN>[:sym|:asym][:f32|:f16|:bf16] or log<2-8>:<row|tensor|gN>"
    "[:f32|:f16|:bf16], N a multiple of 16";

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float load_as_float(const std::byte* from, Dtype dtype) {
  switch (dtype) {
    case Dtype::Float32:
      return load<float>(from);
    case Dtype::Float16:
      return f16_to_float(load<std::uint16_t>(from));
    case Dtype::BFloat16:
      return bf16_to_float(load<std::uint16_t>(from));
    default:
      fail_argument("quantized scales", "f32, f16 or bf16", name_of(dtype));
  }
}

// e4m3 without infinities ("fn"): bias 7, 0x7f is NaN.
float e4m3_to_float(std::uint8_t bits) {
  const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
  if ((bits & 0x7f) == 0x7f) return std::bit_cast<float>(0x7fc00000u);
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

float e5m2_to_float(std::uint8_t bits) {
  return f16_to_float(static_cast<std::uint16_t>(bits << 8));
}

void apply_defaults(QuantSpec& spec) {
  const bool small_groups = spec.span == ScaleSpan::Group && spec.bits <= 4;
  spec.symmetric = !small_groups || spec.kind == CodeKind::Log;
  spec.scale_dtype = small_groups ? Dtype::Float16 : Dtype::Float32;
}

// A whole decimal number, or -1.
Index parse_number(std::string_view text) {
  Index value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

bool parse_span(std::string_view part, QuantSpec& spec) {
  if (part == "row" || part == "tensor") {
    spec.span = part == "row" ? ScaleSpan::Row : ScaleSpan::Tensor;
    return true;
  }
  if (!part.starts_with('g')) return false;
  spec.span = ScaleSpan::Group;
  spec.group = parse_number(part.substr(1));
  return spec.group > 0 && spec.group % 16 == 0;
}

bool parse_option(std::string_view part, QuantSpec& spec) {
  if (part == "sym" || part == "asym") {
    spec.symmetric = part == "sym";
    return true;
  }
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16, Dtype::BFloat16}) {
    if (part == name_of(dtype)) {
      spec.scale_dtype = dtype;
      return true;
    }
  }
  return false;
}

std::vector<std::string_view> split_at_colons(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool try_parse(std::string_view text, QuantSpec& spec) {
  const auto parts = split_at_colons(text);
  const bool is_log = parts[0].starts_with("log");
  if (parts.size() < 2 || !(is_log || parts[0].starts_with("int"))) return false;
  spec.kind = is_log ? CodeKind::Log : CodeKind::Int;
  const Index bits = parse_number(parts[0].substr(3));
  if (bits < 2 || bits > 8) return false;
  spec.bits = static_cast<int>(bits);
  if (!parse_span(parts[1], spec)) return false;
  apply_defaults(spec);
  return std::all_of(parts.begin() + 2, parts.end(),
                     [&](std::string_view part) { return parse_option(part, spec); }) &&
         (spec.symmetric || !is_log);
}

constexpr std::array<std::pair<GgufType, GgufTypeInfo>, 13> kGgufTypes{{
    {GgufType::F32, {"F32", 1, 4}},
    {GgufType::F16, {"F16", 1, 2}},
    {GgufType::Q4_0, {"Q4_0", kQ4_0Block, kQ4_0Bytes}},
    {GgufType::Q4_1, {"Q4_1", 32, 20}},
    {GgufType::Q5_0, {"Q5_0", 32, 22}},
    {GgufType::Q5_1, {"Q5_1", 32, 24}},
    {GgufType::Q8_0, {"Q8_0", kQ8_0Block, kQ8_0Bytes}},
    {GgufType::IQ4_NL, {"IQ4_NL", 32, 18}},
    {GgufType::Q3_K, {"Q3_K", kSuperBlock, 110}},
    {GgufType::Q4_K, {"Q4_K", kSuperBlock, 144}},
    {GgufType::Q5_K, {"Q5_K", kSuperBlock, 176}},
    {GgufType::Q6_K, {"Q6_K", kSuperBlock, 210}},
    {GgufType::BF16, {"BF16", 1, 2}},
}};

template <class T, class Convert>
void convert_row(const std::byte* from, std::span<float> out, Convert convert) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = convert(load<T>(from + i * sizeof(T)));
}

void decode_dense(Dtype dtype, const std::byte* from, std::span<float> out) {
  switch (dtype) {
    case Dtype::Float32:
      if (!out.empty()) std::memcpy(out.data(), from, out.size_bytes());
      return;
    case Dtype::Float16:
      return convert_row<std::uint16_t>(from, out, f16_to_float);
    case Dtype::BFloat16:
      return convert_row<std::uint16_t>(from, out, bf16_to_float);
    case Dtype::Float64:
      return convert_row<double>(from, out, [](double v) { return static_cast<float>(v); });
    case Dtype::Float8E4M3:
      return convert_row<std::uint8_t>(from, out, e4m3_to_float);
    case Dtype::Float8E5M2:
      return convert_row<std::uint8_t>(from, out, e5m2_to_float);
    default:
      fail_unsupported("decode_row", "a floating-point matrix", name_of(dtype));
  }
}

void decode_q8_0(const std::byte* from, std::span<float> out) {
  for (std::size_t begin = 0; begin < out.size(); begin += kQ8_0Block, from += kQ8_0Bytes) {
    const float d = f16_to_float(load<std::uint16_t>(from));
    for (std::size_t j = 0; j < kQ8_0Block; ++j) {
      out[begin + j] = d * static_cast<float>(load<std::int8_t>(from + 2 + j));
    }
  }
}

void decode_q4_0(const std::byte* from, std::span<float> out) {
  for (std::size_t begin = 0; begin < out.size(); begin += kQ4_0Block, from += kQ4_0Bytes) {
    const float d = f16_to_float(load<std::uint16_t>(from));
    for (std::size_t j = 0; j < 16; ++j) {
      const int pair = std::to_integer<int>(from[2 + j]);
      out[begin + j] = d * static_cast<float>((pair & 15) - 8);
      out[begin + j + 16] = d * static_cast<float>((pair >> 4) - 8);
    }
  }
}

void decode_parts(GgufType type, const std::byte* from, std::span<float> out) {
  const GgufTypeInfo& info = gguf_type_info(static_cast<std::uint32_t>(type), "decode_row");
  GgufBlock block;
  for (std::size_t begin = 0; begin < out.size();
       begin += static_cast<std::size_t>(info.block), from += info.bytes) {
    unpack_gguf_block(type, from, block);
    const float d = f16_to_float(block.d), m = f16_to_float(block.m);
    for (std::size_t i = 0; i < static_cast<std::size_t>(info.block); ++i) {
      const float scale = d * static_cast<float>(block.scales[i / 16]);
      const float minimum = m * static_cast<float>(block.mins[i / 16]);
      out[begin + i] = scale * static_cast<float>(block.codes[i]) - minimum;
    }
  }
}

int sign_extend(int code, int bits) {
  const int half = 1 << (bits - 1);
  return (code ^ half) - half;
}

void decode_canonical(const QuantMatrixView& matrix, Index row, std::span<float> out) {
  const QuantSpec& spec = matrix.spec;
  std::vector<std::uint8_t> codes(out.size());
  matrix.row_codes(row, codes);
  const auto group = static_cast<std::size_t>(spec.group_size(matrix.cols));
  for (std::size_t begin = 0, g = 0; begin < out.size(); begin += group, ++g) {
    const float scale = matrix.scale_at(row, static_cast<Index>(g));
    const int zero = matrix.zero_at(row, static_cast<Index>(g));
    const std::size_t end = std::min(out.size(), begin + group);
    for (std::size_t i = begin; i < end; ++i) {
      const int code = spec.symmetric ? sign_extend(codes[i], spec.bits) : codes[i];
      out[i] = scale * (spec.kind == CodeKind::Log ? level_of(spec, code)
                                                   : static_cast<float>(code - zero));
    }
  }
}

// The number of scales (or zeros) in the whole matrix.
Index scale_count(const QuantSpec& spec, Index rows, Index cols) {
  return spec.span == ScaleSpan::Tensor ? 1 : rows * spec.groups_per_row(cols);
}

Index bytes_per_row(const StoredMatrix& matrix) {
  if (matrix.layout == WeightLayout::Dense) return matrix.cols * bytes_of(matrix.dtype);
  const GgufTypeInfo& info =
      gguf_type_info(static_cast<std::uint32_t>(matrix.block_type), "decode_row");
  HONE_CHECK(matrix.cols % info.block == 0, "decode_row",
             concat("columns divisible by ", info.block, " for ", info.name), matrix.cols);
  return matrix.cols / info.block * info.bytes;
}

void check_encoder(std::string_view op, std::size_t values, std::size_t bytes, Index block_bytes) {
  HONE_CHECK(values % 32 == 0, op, "a multiple of 32 values", values);
  const std::size_t needed = values / 32 * static_cast<std::size_t>(block_bytes);
  HONE_CHECK(bytes == needed, op, concat(needed, " bytes of blocks"), bytes);
}

void store_f16(float value, std::byte* to) {
  const std::uint16_t bits = float_to_f16(value);
  std::memcpy(to, &bits, sizeof bits);
}

// The reciprocal that both encoders multiply by. A scale whose reciprocal overflows is stored as
// f16 zero, and a reciprocal of 0 makes its codes zero as well.
float reciprocal_or_zero(float d) {
  const float inverse = d == 0 ? 0.0f : 1.0f / d;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

int clamp_code(float value, float low, float high) {
  return std::isnan(value) ? 0 : static_cast<int>(std::clamp(value, low, high));
}

// Types of ggml that hone does not read.
std::string foreign_gguf_type(std::uint32_t type) {
  constexpr std::pair<std::uint32_t, std::string_view> kForeign[] = {
      {9, "Q8_1"},     {10, "Q2_K"},  {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
      {18, "IQ3_XXS"}, {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
      {24, "I8"},      {25, "I16"},   {26, "I32"},   {27, "I64"},     {28, "F64"},
      {29, "IQ1_M"},   {34, "TQ1_0"}, {35, "TQ2_0"}, {39, "MXFP4"}};
  for (const auto& [number, name] : kForeign) {
    if (number == type) return std::string(name);
  }
  return concat("type ", type);
}

}  // namespace

Index QuantSpec::group_size(Index cols) const { return span == ScaleSpan::Group ? group : cols; }

Index QuantSpec::groups_per_row(Index cols) const {
  return span == ScaleSpan::Group ? ceil_div(cols, group) : 1;
}

Index QuantSpec::code_bytes_per_row(Index cols) const {
  return groups_per_row(cols) * ceil_div(group_size(cols) * bits, 8);
}

double QuantSpec::bits_per_weight(Index rows, Index cols) const {
  if (rows == 0 || cols == 0) return 0;
  const Index scales = scale_count(*this, rows, cols);
  const Index per_scale = bytes_of(scale_dtype) + (symmetric ? 0 : 1);
  const double bytes = static_cast<double>(rows) * static_cast<double>(code_bytes_per_row(cols)) +
                       static_cast<double>(scales) * static_cast<double>(per_scale);
  return 8 * bytes / (static_cast<double>(rows) * static_cast<double>(cols));
}

std::string to_text(const QuantSpec& spec) {
  if (spec.kind == CodeKind::Float) return "float";
  QuantSpec defaults = spec;
  apply_defaults(defaults);
  const bool is_log = spec.kind == CodeKind::Log;
  std::string text = concat(is_log ? "log" : "int", spec.bits);
  if (spec.span == ScaleSpan::Group) {
    text += concat(":g", spec.group);
  } else {
    text += spec.span == ScaleSpan::Row ? ":row" : ":tensor";
  }
  if (!is_log && (spec.span == ScaleSpan::Group || spec.symmetric != defaults.symmetric)) {
    text += spec.symmetric ? ":sym" : ":asym";
  }
  if (spec.scale_dtype != defaults.scale_dtype) text += concat(":", name_of(spec.scale_dtype));
  return text;
}

QuantSpec parse_quant_spec(std::string_view text) {
  QuantSpec spec;
  if (text == "float") {
    spec.kind = CodeKind::Float;
    return spec;
  }
  if (!try_parse(text, spec)) fail_argument("quantization", kLegalSpecs, text);
  return spec;
}

float level_of(const QuantSpec& spec, int code) {
  if (spec.kind != CodeKind::Log) return static_cast<float>(code);
  const int most = (1 << (spec.bits - 1)) - 1;
  if (code == 0 || code < -most) return 0;
  return std::copysign(std::ldexp(1.0f, std::abs(code) - most), static_cast<float>(code));
}

void pack_codes(std::span<const std::uint8_t> codes, int bits, std::span<std::byte> bytes) {
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  const auto width = static_cast<std::size_t>(bits);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t at = i * width;
    const unsigned shifted = static_cast<unsigned>(codes[i]) << (at % 8);
    bytes[at / 8] |= static_cast<std::byte>(shifted & 0xff);
    if (at % 8 + width > 8) bytes[at / 8 + 1] |= static_cast<std::byte>(shifted >> 8);
  }
}

void unpack_codes(std::span<const std::byte> bytes, int bits, std::span<std::uint8_t> codes) {
  if (bits == 8) {
    if (!codes.empty()) std::memcpy(codes.data(), bytes.data(), codes.size());
    return;
  }
  const auto width = static_cast<std::size_t>(bits);
  const unsigned mask = (1u << bits) - 1;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t at = i * width;
    unsigned word = std::to_integer<unsigned>(bytes[at / 8]);
    if (at % 8 + width > 8) word |= std::to_integer<unsigned>(bytes[at / 8 + 1]) << 8;
    codes[i] = static_cast<std::uint8_t>((word >> (at % 8)) & mask);
  }
}

void QuantMatrixView::row_codes(Index row, std::span<std::uint8_t> out) const {
  const Index per_row = spec.code_bytes_per_row(cols);
  const Index group_codes = spec.group_size(cols);
  const Index group_bytes = ceil_div(group_codes * spec.bits, 8);
  Index at = row * per_row;
  for (Index begin = 0; begin < cols; begin += group_codes, at += group_bytes) {
    const Index count = std::min(group_codes, cols - begin);
    unpack_codes(codes.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(group_bytes)),
                 spec.bits,
                 out.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)));
  }
}

float QuantMatrixView::scale_at(Index row, Index group_index) const {
  const Index i =
      spec.span == ScaleSpan::Tensor ? 0 : row * spec.groups_per_row(cols) + group_index;
  return load_as_float(scales.data() + i * bytes_of(spec.scale_dtype), spec.scale_dtype);
}

int QuantMatrixView::zero_at(Index row, Index group_index) const {
  if (spec.symmetric) return 0;
  const Index i =
      spec.span == ScaleSpan::Tensor ? 0 : row * spec.groups_per_row(cols) + group_index;
  return std::to_integer<int>(zeros[static_cast<std::size_t>(i)]);
}

void check_quant_matrix(const QuantMatrixView& matrix) {
  constexpr std::string_view kOp = "quantized matrix";
  const QuantSpec& spec = matrix.spec;
  HONE_CHECK(spec.kind != CodeKind::Float && spec.bits >= 2 && spec.bits <= 8, kOp,
             "codes of 2 to 8 bits", to_text(spec));
  HONE_CHECK(spec.kind == CodeKind::Int || spec.symmetric, kOp, "symmetric logarithmic codes",
             to_text(spec));
  HONE_CHECK(spec.span != ScaleSpan::Group || (spec.group > 0 && spec.group % 16 == 0), kOp,
             "a group size that is a multiple of 16", spec.group);
  HONE_CHECK(matrix.rows >= 0 && matrix.cols >= 0, kOp, "sizes of at least 0",
             concat("[", matrix.rows, ", ", matrix.cols, "]"));
  const auto check_size = [&](std::string_view part, std::size_t got, Index needed) {
    HONE_CHECK(static_cast<Index>(got) == needed, kOp, concat(needed, " bytes of ", part), got);
  };
  const Index scales = scale_count(spec, matrix.rows, matrix.cols);
  check_size("codes", matrix.codes.size(),
             checked_mul(matrix.rows, spec.code_bytes_per_row(matrix.cols), kOp));
  check_size("scales", matrix.scales.size(), scales * bytes_of(spec.scale_dtype));
  check_size("zeros", matrix.zeros.size(), spec.symmetric ? 0 : scales);
}

const GgufTypeInfo& gguf_type_info(std::uint32_t type, std::string_view tensor) {
  for (const auto& [known, info] : kGgufTypes) {
    if (static_cast<std::uint32_t>(known) == type) return info;
  }
  fail_unsupported(
      tensor,
      "one of the GGUF types F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL and Q3_K to Q6_K",
      foreign_gguf_type(type));
}

Index StoredMatrix::stored_bytes() const {
  if (layout != WeightLayout::Canonical) return static_cast<Index>(bytes.size());
  return static_cast<Index>(quant.codes.size() + quant.scales.size() + quant.zeros.size());
}

void decode_row(const StoredMatrix& matrix, Index row, std::span<float> out) {
  constexpr std::string_view kOp = "decode_row";
  HONE_CHECK(row >= 0 && row < matrix.rows, kOp, concat("a row below ", matrix.rows), row);
  HONE_CHECK(static_cast<Index>(out.size()) == matrix.cols, kOp, concat(matrix.cols, " values"),
             out.size());
  if (matrix.layout == WeightLayout::Canonical) {
    HONE_CHECK(matrix.quant.rows == matrix.rows && matrix.quant.cols == matrix.cols, kOp,
               concat("codes of [", matrix.rows, ", ", matrix.cols, "]"),
               concat("[", matrix.quant.rows, ", ", matrix.quant.cols, "]"));
    check_quant_matrix(matrix.quant);
    return decode_canonical(matrix.quant, row, out);
  }
  const Index per_row = bytes_per_row(matrix);
  HONE_CHECK(static_cast<Index>(matrix.bytes.size()) >= checked_mul(matrix.rows, per_row, kOp), kOp,
             concat(matrix.rows, " rows of ", per_row, " bytes"), matrix.bytes.size());
  const std::byte* from = matrix.bytes.data() + row * per_row;
  if (matrix.layout == WeightLayout::Dense) return decode_dense(matrix.dtype, from, out);
  switch (matrix.block_type) {
    case GgufType::Q8_0:
      return decode_q8_0(from, out);
    case GgufType::Q4_0:
      return decode_q4_0(from, out);
    default:
      return decode_parts(matrix.block_type, from, out);
  }
}

void decode(const StoredMatrix& matrix, std::span<float> out) {
  const Index values = checked_mul(matrix.rows, matrix.cols, "decode");
  HONE_CHECK(static_cast<Index>(out.size()) == values, "decode", concat(values, " values"),
             out.size());
  for (Index row = 0; row < matrix.rows; ++row) {
    decode_row(matrix, row,
               out.subspan(static_cast<std::size_t>(row * matrix.cols),
                           static_cast<std::size_t>(matrix.cols)));
  }
}

// d = absmax / 127; q = x times the reciprocal of the unrounded d, rounded half away from zero.
void encode_q8_0(std::span<const float> values, std::span<std::byte> blocks) {
  check_encoder("encode_q8_0", values.size(), blocks.size(), kQ8_0Bytes);
  std::byte* to = blocks.data();
  for (std::size_t begin = 0; begin < values.size(); begin += kQ8_0Block, to += kQ8_0Bytes) {
    const std::span<const float> block = values.subspan(begin, kQ8_0Block);
    float largest = 0;
    for (const float x : block) largest = std::max(largest, std::fabs(x));
    const float d = largest / 127.0f;
    const float inverse = reciprocal_or_zero(d);
    store_f16(d, to);
    for (std::size_t j = 0; j < block.size(); ++j) {
      to[2 + j] = static_cast<std::byte>(clamp_code(std::round(block[j] * inverse), -127, 127));
    }
  }
}

// m = the value of largest magnitude (the first one on ties); d = m / -8; q = min(15, x / d + 8.5).
// The product is rounded to float before the sum, as in the reference.
void encode_q4_0(std::span<const float> values, std::span<std::byte> blocks) {
  check_encoder("encode_q4_0", values.size(), blocks.size(), kQ4_0Bytes);
  std::byte* to = blocks.data();
  for (std::size_t begin = 0; begin < values.size(); begin += kQ4_0Block, to += kQ4_0Bytes) {
    const std::span<const float> block = values.subspan(begin, kQ4_0Block);
    float largest = 0;
    for (const float x : block) {
      if (std::fabs(x) > std::fabs(largest)) largest = x;
    }
    const float d = largest / -8.0f;
    const float inverse = reciprocal_or_zero(d);
    store_f16(d, to);
    const auto code = [&](std::size_t j) { return clamp_code(block[j] * inverse + 8.5f, 0, 15); };
    for (std::size_t j = 0; j < 16; ++j) {
      to[2 + j] = static_cast<std::byte>(code(j) | (code(j + 16) << 4));
    }
  }
}

}  // namespace hone
