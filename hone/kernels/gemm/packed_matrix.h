// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "hone/core/buffer.h"
#include "hone/core/format/quant_format.h"
#include "hone/core/thread/executor.h"
#include "hone/kernels/gemm/panel_layout.h"

namespace hone::kernels {

// The type of the activations in a product.
enum class Act : std::uint8_t {
  Float32,
  Int8,  // symmetric int8 per row and per 32 columns; only with panels of codes
};

// Packed weights, in memory of their own unless over() made them. Move-only, and immutable after
// packing, so threads may share them.
class PackedMatrix {
 public:
  PackedMatrix() = default;

  // Makes a matrix whose panels are in other memory, such as a mapped file. They must be the panels
  // that pack() makes of a matrix like `stored`, or pack_gate_up() of two such matrices. The bytes
  // of blocks and dense matrices in `stored` are not read and may be absent. `panels` must outlive
  // the result. Throws Error{InvalidArgument} unless `panels` has packed_bytes() and is aligned to
  // 64.
  static PackedMatrix over(const StoredMatrix& stored, bool gate_up,
                           std::span<const std::byte> panels);
  static Index packed_bytes(const StoredMatrix& stored, bool gate_up);

  Index rows() const { return rows_; }  // number of outputs; with gate and up, of one half
  Index cols() const { return layout_.cols; }
  bool is_gate_up() const { return gate_up_; }
  bool takes(Act act) const { return act == Act::Float32 || layout_.has_codes(); }
  // The type that the stored matrix requests (StoredMatrix::act_int8); Float32 if Int8 is
  // impossible.
  Act preferred_act() const { return preferred_act_; }
  Index bytes() const { return panels() * layout_.panel_bytes; }
  // "f32", "f16", "bf16", "q8x16", "q4x16", "q5x16min", "q4x16min", "q6x16half".
  std::string variant() const;

  const PanelLayout& layout() const { return layout_; }
  Index panels() const;
  const std::byte* panel(Index index) const { return data() + index * layout_.panel_bytes; }
  std::span<const std::byte> all_panels() const {
    return {data(), static_cast<std::size_t>(bytes())};
  }

  // Decodes row `row`, where rows of gate precede rows of up; out.size() == cols(). Bit-identical
  // to decode_row() of the stored matrix.
  void unpack_row(Index row, std::span<float> out) const;

 private:
  friend PackedMatrix pack(const StoredMatrix& stored, Executor& executor);
  friend PackedMatrix pack_gate_up(const StoredMatrix& gate, const StoredMatrix& up,
                                   Executor& executor, const std::function<void()>& gate_is_packed);
  static PackedMatrix describe(const StoredMatrix& stored, bool gate_up);
  static PackedMatrix allocate(const StoredMatrix& stored, bool gate_up);
  const std::byte* data() const { return outside_ != nullptr ? outside_ : panels_.data(); }

  PanelLayout layout_;
  Index rows_ = 0;
  bool gate_up_ = false;
  Act preferred_act_ = Act::Float32;
  Buffer panels_;
  const std::byte* outside_ = nullptr;  // the panels passed to over()
};

// Packs a matrix. Dense f32, f16 and bf16 keep their type; f64 and f8 become f32. Q8_0, Q5_0 and
// integers of 5 to 8 bits become Code8; Q4_0 and integers of 2 to 4 bits become Code4. Q4_1 and
// Q4_K become Min4, Q5_1 and Q5_K become Min5, and Q6_K becomes Half6. Codes, scales and minimums
// are rearranged, never rounded again. Groups that are not a multiple of 32 columns have no integer
// kernel and are decoded to f32. Throws Error{CorruptFile} for a scale that is not finite.
PackedMatrix pack(const StoredMatrix& stored, Executor& executor = serial_executor());

// Packs gate and up of one gated layer, which must have the same shape and format. Panel 2i is gate
// and panel 2i+1 is up, so that silu(gate) * up needs no second pass. Calls `gate_is_packed`,
// unless it is empty, after gate was read and before up is read.
PackedMatrix pack_gate_up(const StoredMatrix& gate, const StoredMatrix& up,
                          Executor& executor = serial_executor(),
                          const std::function<void()>& gate_is_packed = {});

}  // namespace hone::kernels
