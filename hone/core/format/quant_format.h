// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hone/core/dtype.h"

namespace hone {

// ---- hone's canonical codes -------------------------------------------------------------------
// W is [rows, cols]; groups run along cols. Each group of a row is a little-endian bit stream with
// code i in bits [i*b, (i+1)*b), padded to a byte (int4: low nibble first). The last group of a row
// may be short; the row is padded with zero codes to a whole group. value = scale * (code - zero).
// Symmetric: zero = 0 and codes are two's complement. Asymmetric: codes and zeros are unsigned, and
// a zero takes one byte. Scales and zeros are [rows][groups per row], row-major. Logarithmic codes
// are symmetric ones that stand for powers of two; see level_of().

enum class CodeKind : std::uint8_t { Float, Int, Log };
enum class ScaleSpan : std::uint8_t { Tensor, Row, Group };

struct QuantSpec {
  CodeKind kind = CodeKind::Int;
  int bits = 8;  // 2…8
  ScaleSpan span = ScaleSpan::Row;
  Index group = 0;  // along cols, a multiple of 16; 0 unless span == Group
  bool symmetric = true;
  Dtype scale_dtype = Dtype::Float32;

  Index group_size(Index cols) const;  // elements that share a scale in one row
  Index groups_per_row(Index cols) const;
  Index code_bytes_per_row(Index cols) const;
  double bits_per_weight(Index rows, Index cols) const;  // including scales, zeros and padding
  friend bool operator==(const QuantSpec&, const QuantSpec&) = default;
};

// The value that a code stands for before it is scaled, without the zero point. With h = 2^(b-1):
//   Int  the code
//   Log  0 for 0, otherwise ±2^(|code| - (h - 1)): the largest is 1; code -h, which is not used, is
//   0
float level_of(const QuantSpec& spec, int code);

// "int8:row", "int4:g32:asym", "log4:g32", "float"; to_text and parse_quant_spec are inverse. The
// form is int<bits>:<row|tensor|gN>[:sym|:asym][:f32|:f16|:bf16], or log<bits>:… without :asym. By
// default, groups of 2 to 4 bits have f16 scales and are asymmetric unless they are logarithmic;
// everything else is symmetric with f32 scales.
std::string to_text(const QuantSpec& spec);
QuantSpec parse_quant_spec(std::string_view text);  // Error{InvalidArgument} names the legal forms

// Packs one group or row into ceil(codes.size() * bits / 8) bytes. codes[i] must be in [0, 2^bits):
// the caller masks two's complement codes.
void pack_codes(std::span<const std::uint8_t> codes, int bits, std::span<std::byte> bytes);
void unpack_codes(std::span<const std::byte> bytes, int bits, std::span<std::uint8_t> codes);

// A non-owning view of a matrix in the canonical layout.
struct QuantMatrixView {
  QuantSpec spec;
  Index rows = 0, cols = 0;
  std::span<const std::byte> codes, scales, zeros;

  // The raw codes of one row, with the bits above spec.bits clear; out.size() == cols.
  void row_codes(Index row, std::span<std::uint8_t> out) const;
  // The scale and zero point of one group; zero_at is 0 for symmetric codes.
  float scale_at(Index row, Index group_index) const;
  int zero_at(Index row, Index group_index) const;
};

// Throws Error{InvalidArgument} unless the spec and the sizes of the spans agree.
void check_quant_matrix(const QuantMatrixView& matrix);

// ---- GGUF blocks --------------------------------------------------------------------------------

enum class GgufType : std::uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ4_NL = 20,
  BF16 = 30,
};
struct GgufTypeInfo {
  std::string_view name;  // "Q8_0"
  Index block;            // elements
  Index bytes;            // per block
};
// Throws Error{Unsupported} that names `tensor` and the type for types that hone does not read.
const GgufTypeInfo& gguf_type_info(std::uint32_t type, std::string_view tensor);
inline constexpr Index kQ8_0Block = 32, kQ8_0Bytes = 34, kQ4_0Block = 32, kQ4_0Bytes = 18;
inline constexpr Index kSuperBlock = 256;  // elements of a block of a K-quant

// The values of the codes of IQ4_NL.
inline constexpr std::array<std::int8_t, 16> kIq4Levels{-127, -104, -83, -65, -49, -35, -22, -10,
                                                        1,    13,   25,  38,  53,  69,  89,  113};

// The parts of one block of Q4_1, Q5_0, Q5_1, IQ4_NL or a K-quant, as stored. With s = i / 16,
//   value[i] = (d · scales[s]) · codes[i] − (m · mins[s]),
// where d and m are f16. Every product is exact in f32, so a value is rounded once. Q4_1 and Q5_1
// add their minimum, so m has its sign inverted here. Types without sub-blocks have scales of 1;
// types without minimums have m = 0. In Q3_K and Q6_K, 16 elements share a scale and a minimum; in
// the others, 32.
struct GgufBlock {
  std::uint16_t d = 0, m = 0;  // bits of f16
  // Q5_0: minus 16, Q3_K: minus 4, Q6_K: minus 32, IQ4_NL: levels
  std::array<std::int8_t, kSuperBlock> codes{};
  std::array<std::int8_t, kSuperBlock / 16> scales{}, mins{};
};

// Unpacks the block at `from`, which has gguf_type_info(type).bytes. Throws Error{Unsupported} for
// other types.
void unpack_gguf_block(GgufType type, const std::byte* from, GgufBlock& out);

// ---- one stored matrix, whatever its format ----------------------------------------------------

enum class WeightLayout : std::uint8_t { Dense, GgufBlocks, Canonical };

// A non-owning view of a matrix [rows, cols] as stored in a file. Vectors are one row.
struct StoredMatrix {
  WeightLayout layout = WeightLayout::Dense;
  Index rows = 0, cols = 0;
  Dtype dtype = Dtype::Float32;         // Dense
  GgufType block_type = GgufType::F32;  // GgufBlocks; dense GGUF types are Dense
  std::span<const std::byte> bytes;     // Dense, GgufBlocks; may be unaligned
  QuantMatrixView quant;                // Canonical
  bool act_int8 = true;  // whether products quantize activations to int8 in groups of 32

  Index stored_bytes() const;
};

// Decodes a row as f32; out.size() == cols. Only this function defines what stored weights mean.
void decode_row(const StoredMatrix& matrix, Index row, std::span<float> out);
void decode(const StoredMatrix& matrix, std::span<float> out);  // rows * cols, row-major

// GGUF encoders, bit-identical to ggml's reference encoders. values.size() % 32 == 0.
void encode_q8_0(std::span<const float> values, std::span<std::byte> blocks);
void encode_q4_0(std::span<const float> values, std::span<std::byte> blocks);

}  // namespace hone
