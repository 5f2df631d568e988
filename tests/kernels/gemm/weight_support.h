// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hone/core/format/quant_format.h"
#include "hone/core/philox.h"
#include "hone/kernels/gemm/packed_rows.h"
#include "hone/kernels/gemm/tile.h"

namespace hone::kernels::test {

// A weight matrix in one stored format together with the integers it is made of.
struct TestWeight {
  std::string format;  // "f32", "f16", "bf16", one of gguf_formats() or a QuantSpec
  Index rows = 0, cols = 0;
  // Signed difference code - zero and scale of every element; empty for dense formats.
  std::vector<int> offset;
  std::vector<float> scale;
  std::vector<float> minimum;  // subtracted from scale * offset; empty if there is none
  std::vector<std::byte> bytes, codes, scales, zeros;

  StoredMatrix stored() const;
};

enum class Fill { Random, AllLowest, AllHighest, ZeroScale, NegativeScale, SubnormalScale };

TestWeight make_weight(const std::string& format, Index rows, Index cols, std::uint64_t seed,
                       Fill fill = Fill::Random);

std::vector<float> random_floats(Index count, std::uint64_t seed, float amplitude = 1.0f);

// A tile of all rows and panels; `out` is left to the caller.
TileArgs whole_tile(const PackedMatrix& weight, const PackedRows& x);

inline std::vector<std::string> gguf_formats() {
  return {"q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"};
}
inline std::vector<std::string> integer_formats() {
  std::vector<std::string> formats{"int8:row",          "int8:row:asym",     "int8:tensor",
                                   "int4:g32",          "int4:g32:sym",      "int4:g64:asym",
                                   "int4:g128:sym:f32", "int3:g96",          "int2:g32",
                                   "int6:row",          "int5:g32:asym:f16", "int4:row:bf16"};
  for (const std::string& format : gguf_formats()) formats.push_back(format);
  return formats;
}
// Rows are a multiple of this long: 256, 32 or 1.
Index block_of(const std::string& format);
// The smallest length that fits the format and is not below `cols`.
Index fitting_cols(const std::string& format, Index cols);
inline std::vector<std::string> dense_formats() { return {"f32", "f16", "bf16"}; }
// The last two have no whole blocks of 32 in a group, and are decoded to f32.
inline std::vector<std::string> every_format() {
  std::vector<std::string> formats = integer_formats();
  for (const std::string& dense : dense_formats()) formats.push_back(dense);
  formats.insert(formats.end(), {"int4:g16", "int8:g48"});
  return formats;
}

}  // namespace hone::kernels::test
