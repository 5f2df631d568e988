// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "hone/core/buffer.h"
#include "hone/core/executor.h"
#include "hone/core/quant_format.h"
#include "hone/kernels/gemm/panel_layout.h"

namespace hone::kernels {

// The type of the activations in a product.
enum class Act : std::uint8_t {
  Float32,
  Int8,  // symmetric int8 per row and per 32 columns; only with panels of codes
};

// Owns packed weights. Move-only, and immutable after packing, so it may be shared between threads.
class PackedMatrix {
 public:
  PackedMatrix() = default;

  Index rows() const { return rows_; }  // number of outputs; of one half for gate and up
  Index cols() const { return layout_.cols; }
  bool is_gate_up() const { return gate_up_; }
  bool takes(Act act) const { return act == Act::Float32 || layout_.has_codes(); }
  // What the stored matrix requests (StoredMatrix::act_int8); Float32 if Int8 is impossible.
  Act preferred_act() const { return preferred_act_; }
  Index bytes() const { return panels_.bytes(); }
  // "f32", "f16", "bf16", "q8x16", "q4x16", "q8x16min", "q4x16min", "q8x16half".
  std::string variant() const;

  const PanelLayout& layout() const { return layout_; }
  Index panels() const;
  const std::byte* panel(Index index) const { return panels_.data() + index * layout_.panel_bytes; }

  // Decodes row `row`, where rows of gate precede those of up; out.size() == cols(). Bit-identical
  // to decode_row() of the stored matrix.
  void unpack_row(Index row, std::span<float> out) const;

 private:
  friend PackedMatrix pack(const StoredMatrix& stored, Executor& executor);
  friend PackedMatrix pack_gate_up(const StoredMatrix& gate, const StoredMatrix& up,
                                   Executor& executor);
  static PackedMatrix allocate(const StoredMatrix& stored, bool gate_up);

  PanelLayout layout_;
  Index rows_ = 0;
  bool gate_up_ = false;
  Act preferred_act_ = Act::Float32;
  Buffer panels_;
};

// Packs a matrix. Dense f32, f16 and bf16 keep their type (f64 and f8 become f32); Q8_0 and
// integers of 5 to 8 bits become Code8, Q4_0 and integers of 2 to 4 bits Code4. Q5_0 becomes Code8,
// Q4_1 and Q4_K Min4, Q5_1 and Q5_K Min8, Q6_K Half8. Codes, scales and minimums are rearranged,
// never rounded again. Groups that are not a multiple of 32 columns have no integer
// kernel and are decoded to f32. Throws Error{CorruptFile} for a scale that is not finite.
PackedMatrix pack(const StoredMatrix& stored, Executor& executor = serial_executor());

// Packs gate and up of one gated layer, which have the same shape and format, interleaved by 16
// rows so that silu(gate) * up needs no second pass: panel 2i is gate, panel 2i+1 is up.
PackedMatrix pack_gate_up(const StoredMatrix& gate, const StoredMatrix& up,
                          Executor& executor = serial_executor());

}  // namespace hone::kernels
