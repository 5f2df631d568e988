// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hone/core/dtype.h"

namespace hone {

// ---- hone's canonical codes -------------------------------------------------------------------
// W is [rows, cols]; groups run along cols. Codes: per row, per group, a little-endian bit stream,
// code i in bits [i*b, (i+1)*b), a group padded to a byte (int4: low nibble first). The last group
// of a row may be short; the row is padded with zero codes to a whole group.
// value = scale * (code - zero). Symmetric: zero = 0 and codes are two's complement. Asymmetric:
// codes and zeros are unsigned, zeros one byte each. Scales and zeros: [rows][groups per row],
// row-major.

enum class CodeKind : std::uint8_t { Float, Int };
enum class ScaleSpan : std::uint8_t { Tensor, Row, Group };

struct QuantSpec {
  CodeKind kind = CodeKind::Int;
  int bits = 8;  // 2…8 for Int
  ScaleSpan span = ScaleSpan::Row;
  Index group = 0;  // along cols, multiple of 16; 0 unless span == Group
  bool symmetric = true;
  Dtype scale_dtype = Dtype::Float32;

  Index group_size(Index cols) const;  // elements that share a scale in one row
  Index groups_per_row(Index cols) const;
  Index code_bytes_per_row(Index cols) const;
  double bits_per_weight(Index rows, Index cols) const;  // scales, zeros and padding included
  friend bool operator==(const QuantSpec&, const QuantSpec&) = default;
};

// "int8:row", "int4:g32:asym", "float"; to_text and parse_quant_spec are inverse. The form is
// int<bits>:<row|tensor|gN>[:sym|:asym][:f32|:f16|:bf16]. Left out: groups of 2-4 bits are
// asymmetric with f16 scales, everything else is symmetric with f32 scales.
std::string to_text(const QuantSpec& spec);
QuantSpec parse_quant_spec(std::string_view text);  // Error{InvalidArgument} names the legal forms

// The bit stream of one group or row: codes[i] in [0, 2^bits), in ceil(codes.size() * bits / 8)
// bytes. Two's complement codes are cut to `bits` by the caller.
void pack_codes(std::span<const std::uint8_t> codes, int bits, std::span<std::byte> bytes);
void unpack_codes(std::span<const std::byte> bytes, int bits, std::span<std::uint8_t> codes);

// Never owns; canonical layout.
struct QuantMatrixView {
  QuantSpec spec;
  Index rows = 0, cols = 0;
  std::span<const std::byte> codes, scales, zeros;

  // Raw codes of one row, bits above spec.bits clear; out.size() == cols.
  void row_codes(Index row, std::span<std::uint8_t> out) const;
  // Scale and zero point of one group; zero_at is 0 when symmetric.
  float scale_at(Index row, Index group_index) const;
  int zero_at(Index row, Index group_index) const;
};

// Error{InvalidArgument} unless spec and sizes of the spans agree.
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
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  BF16 = 30,
};
struct GgufTypeInfo {
  std::string_view name;  // "Q8_0"
  Index block;            // elements
  Index bytes;            // per block
};
// Error{Unsupported} naming `tensor` and the type for types hone does not read.
const GgufTypeInfo& gguf_type_info(std::uint32_t type, std::string_view tensor);
inline constexpr Index kQ8_0Block = 32, kQ8_0Bytes = 34, kQ4_0Block = 32, kQ4_0Bytes = 18;

// ---- one stored matrix, whatever its format ----------------------------------------------------

enum class WeightLayout : std::uint8_t { Dense, GgufBlocks, Canonical };

// A matrix [rows, cols] as it lies in a file; vectors are one row. Never owns.
struct StoredMatrix {
  WeightLayout layout = WeightLayout::Dense;
  Index rows = 0, cols = 0;
  Dtype dtype = Dtype::Float32;         // Dense
  GgufType block_type = GgufType::F32;  // GgufBlocks: Q8_0, Q4_0 (dense GGUF types are Dense)
  std::span<const std::byte> bytes;     // Dense, GgufBlocks; may be unaligned
  QuantMatrixView quant;                // Canonical
  bool act_int8 = true;                 // products quantize activations to int8 per 32

  Index stored_bytes() const;
};

// The one definition of what a file means: row `row` as f32, out.size() == cols.
void decode_row(const StoredMatrix& matrix, Index row, std::span<float> out);
void decode(const StoredMatrix& matrix, std::span<float> out);  // rows * cols, row-major

// GGUF encoders, bit-equal to the reference ones (inference.md 2.2). values.size() % 32 == 0.
void encode_q8_0(std::span<const float> values, std::span<std::byte> blocks);
void encode_q4_0(std::span<const float> values, std::span<std::byte> blocks);

}  // namespace hone
