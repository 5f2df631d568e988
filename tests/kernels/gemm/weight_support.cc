// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/gemm/weight_support.h"

#include <algorithm>
#include <cstring>

#include "hone/core/bf16.h"

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

}  // namespace

StoredMatrix TestWeight::stored() const {
  StoredMatrix matrix;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.bytes = bytes;
  if (format == "f32" || format == "f16" || format == "bf16") {
    matrix.dtype = format == "f32"   ? Dtype::Float32
                   : format == "f16" ? Dtype::Float16
                                     : Dtype::BFloat16;
  } else if (format == "q8_0" || format == "q4_0") {
    matrix.layout = WeightLayout::GgufBlocks;
    matrix.block_type = format == "q8_0" ? GgufType::Q8_0 : GgufType::Q4_0;
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

}  // namespace hone::kernels::test
