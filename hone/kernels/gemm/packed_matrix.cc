// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/gemm/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/gemm/panel.h"

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "pack";
constexpr Index kQuad = 4;

void require_finite_scale(float scale, Index row, Index group) {
  if (std::isfinite(scale)) return;
  fail_corrupt(kOp, "finite scales", concat(scale, " in row ", row, ", group ", group));
}

Index whole_blocks_per_group(const QuantSpec& spec, Index blocks) {
  return spec.span == ScaleSpan::Group ? spec.group / kBlockCols : std::max<Index>(blocks, 1);
}

// The records of a panel, once everything else is known.
void lay_out_records(PanelLayout& layout, bool zeros) {
  Index at = kPanelRows * (layout.half_scales ? 2 : 4);
  if (has_minimums(layout.kind)) at += kPanelRows * 2;
  if (zeros) {
    layout.zeros_offset = at;
    at += kPanelRows;
  }
  if (has_factors(layout.kind) && layout.blocks_per_group > 1) {
    layout.factors_offset = at;
    at += layout.blocks_per_group * kFactorBytes;
  }
  layout.codes_offset = at;
  const Index block = code_block_bytes(layout.kind);
  layout.group_bytes = at + layout.blocks_per_group * block;
  const Index groups = ceil_div(layout.blocks, layout.blocks_per_group);
  layout.panel_bytes = round_up(groups * at + layout.blocks * block, kCacheLine);
}

int zero_point_of(PanelKind kind) {
  switch (kind) {
    case PanelKind::Code8:
      return 128;
    case PanelKind::Code4:
      return 8;
    case PanelKind::Half6:
      return 32;
    default:
      return 0;
  }
}

// Powers of two up to 64 times the smallest one are codes of 8 bits.
constexpr int kMostLogBits = 4;

// The smallest positive level of canonical codes.
float smallest_level(const QuantSpec& spec) { return level_of(spec, 1); }

PanelKind panel_kind_of(GgufType type) {
  switch (type) {
    case GgufType::Q8_0:
    case GgufType::Q5_0:
    case GgufType::IQ4_NL:
      return PanelKind::Code8;
    case GgufType::Q4_0:
      return PanelKind::Code4;
    case GgufType::Q4_1:
    case GgufType::Q4_K:
      return PanelKind::Min4;
    case GgufType::Q5_1:
    case GgufType::Q5_K:
      return PanelKind::Min5;
    case GgufType::Q3_K:
    case GgufType::Q6_K:
      return PanelKind::Half6;
    default:
      fail_argument(kOp, "a type of quantized blocks",
                    gguf_type_info(static_cast<std::uint32_t>(type), kOp).name);
  }
}

void lay_out_blocks(PanelLayout& layout, GgufType type) {
  const GgufTypeInfo& info = gguf_type_info(static_cast<std::uint32_t>(type), kOp);
  layout.kind = panel_kind_of(type);
  HONE_CHECK(layout.cols % info.block == 0, kOp,
             concat("a multiple of ", info.block, " columns for ", info.name), layout.cols);
  layout.half_scales = true;
  layout.blocks_per_group = info.block / kBlockCols;
  layout.zero_point = zero_point_of(layout.kind);
  lay_out_records(layout, false);
}

void lay_out_canonical(PanelLayout& layout, const QuantSpec& spec) {
  const bool is_log = spec.kind == CodeKind::Log;
  if ((spec.span == ScaleSpan::Group && spec.group % kBlockCols != 0) ||
      (is_log && spec.bits > kMostLogBits)) {
    layout.kind = PanelKind::F32;
    layout.panel_bytes = layout.cols * kPanelRows * 4;
    return;
  }
  layout.kind = spec.bits > 4 || is_log ? PanelKind::Code8 : PanelKind::Code4;
  layout.half_scales = spec.scale_dtype == Dtype::Float16 && !is_log;
  layout.zero_point = spec.symmetric ? zero_point_of(layout.kind) : 0;
  layout.blocks_per_group = whole_blocks_per_group(spec, layout.blocks);
  lay_out_records(layout, !spec.symmetric);
}

void lay_out_dense(PanelLayout& layout, Dtype dtype) {
  HONE_CHECK(is_floating(dtype), kOp, "a floating-point matrix", name_of(dtype));
  layout.kind = dtype == Dtype::Float16    ? PanelKind::F16
                : dtype == Dtype::BFloat16 ? PanelKind::BF16
                                           : PanelKind::F32;
  const Index element = layout.kind == PanelKind::F32 ? 4 : 2;
  layout.panel_bytes = round_up(layout.cols * kPanelRows * element, kCacheLine);
}

PanelLayout lay_out(const StoredMatrix& stored) {
  PanelLayout layout;
  layout.cols = stored.cols;
  layout.blocks = ceil_div(stored.cols, kBlockCols);
  switch (stored.layout) {
    case WeightLayout::Dense:
      lay_out_dense(layout, stored.dtype);
      break;
    case WeightLayout::GgufBlocks:
      lay_out_blocks(layout, stored.block_type);
      break;
    case WeightLayout::Canonical:
      check_quant_matrix(stored.quant);
      lay_out_canonical(layout, stored.quant.spec);
      break;
  }
  return layout;
}

// Writes up to 16 rows of one stored matrix as one panel.
class PanelWriter {
 public:
  PanelWriter(const StoredMatrix& stored, const PanelLayout& layout)
      : stored_(stored), layout_(layout) {}

  void write(Index first_row, std::byte* panel) const {
    const Index rows = std::min(kPanelRows, stored_.rows - first_row);
    for (Index lane = 0; lane < rows; ++lane) write_row(first_row + lane, lane, panel);
  }

 private:
  void write_row(Index row, Index lane, std::byte* panel) const {
    if (!layout_.has_codes()) {
      layout_.kind == PanelKind::F32 ? write_decoded(row, lane, panel)
                                     : write_half(row, lane, panel);
    } else if (stored_.layout == WeightLayout::GgufBlocks) {
      write_blocks(row, lane, panel);
    } else {
      write_canonical(row, lane, panel);
    }
  }

  void write_decoded(Index row, Index lane, std::byte* panel) const {
    std::vector<float> values(static_cast<std::size_t>(stored_.cols));
    decode_row(stored_, row, values);
    auto* to = reinterpret_cast<float*>(panel) + lane;
    for (Index k = 0; k < stored_.cols; ++k)
      to[k * kPanelRows] = values[static_cast<std::size_t>(k)];
  }

  void write_half(Index row, Index lane, std::byte* panel) const {
    const std::byte* from = stored_.bytes.data() + row * stored_.cols * 2;
    std::byte* to = panel + lane * 2;
    for (Index k = 0; k < stored_.cols; ++k) std::memcpy(to + k * kPanelRows * 2, from + k * 2, 2);
  }

  void write_blocks(Index row, Index lane, std::byte* panel) const {
    switch (stored_.block_type) {
      case GgufType::Q8_0:
        return write_q8_0(row, lane, panel);
      case GgufType::Q4_0:
        return write_q4_0(row, lane, panel);
      default:
        return write_parts(row, lane, panel);
    }
  }

  void write_half_scale(std::byte* panel, Index group, Index lane, Index row,
                        const std::byte* from) const {
    std::uint16_t bits;
    std::memcpy(&bits, from, 2);
    put_scale(panel + record_at(layout_, group) + lane * 2, bits, row, group);
  }

  static void put_scale(std::byte* to, std::uint16_t bits, Index row, Index group) {
    require_finite_scale(f16_to_float(bits), row, group);
    std::memcpy(to, &bits, 2);
  }

  void write_parts(Index row, Index lane, std::byte* panel) const {
    const GgufTypeInfo& info = gguf_type_info(static_cast<std::uint32_t>(stored_.block_type), kOp);
    const Index groups = stored_.cols / info.block;
    const std::byte* from = stored_.bytes.data() + row * groups * info.bytes;
    const bool minimums = has_minimums(layout_.kind);
    GgufBlock block;
    for (Index g = 0; g < groups; ++g, from += info.bytes) {
      unpack_gguf_block(stored_.block_type, from, block);
      std::byte* scales = panel + record_at(layout_, g);
      put_scale(scales + lane * 2, block.d, row, g);
      if (minimums) put_scale(scales + (kPanelRows + lane) * 2, block.m, row, g);
      for (Index b = 0; b < layout_.blocks_per_group; ++b) {
        write_block(block, b, g * layout_.blocks_per_group + b, lane, panel);
      }
    }
  }

  // Writes 32 columns of a block as block `at` of the panel.
  void write_block(const GgufBlock& block, Index b, Index at, Index lane, std::byte* panel) const {
    std::uint8_t codes[kBlockCols];
    for (Index j = 0; j < kBlockCols; ++j) {
      codes[j] = static_cast<std::uint8_t>(
          block.codes[static_cast<std::size_t>(b * kBlockCols + j)] + layout_.zero_point);
    }
    scatter(codes, panel + codes_of(layout_, at) + lane * kQuad);
    if (layout_.factors_offset == 0) return;
    std::byte* factors = panel + factors_of(layout_, at) + lane;
    const auto half = static_cast<std::size_t>(2 * b);
    factors[0] = static_cast<std::byte>(block.scales[half]);
    factors[kPanelRows] = static_cast<std::byte>(
        layout_.kind == PanelKind::Half6 ? block.scales[half + 1] : block.mins[half]);
  }

  void write_q8_0(Index row, Index lane, std::byte* panel) const {
    const std::byte* from = stored_.bytes.data() + row * layout_.blocks * kQ8_0Bytes;
    std::byte* to = panel + layout_.codes_offset + lane * kQuad;
    for (Index b = 0; b < layout_.blocks; ++b, from += kQ8_0Bytes, to += layout_.group_bytes) {
      write_half_scale(panel, b, lane, row, from);
      for (Index quad = 0; quad < 8; ++quad) {
        std::uint32_t codes;
        std::memcpy(&codes, from + 2 + quad * kQuad, 4);
        codes ^= 0x80808080u;
        std::memcpy(to + quad * kCacheLine, &codes, 4);
      }
    }
  }

  void write_q4_0(Index row, Index lane, std::byte* panel) const {
    const std::byte* from = stored_.bytes.data() + row * layout_.blocks * kQ4_0Bytes;
    std::byte* to = panel + layout_.codes_offset + lane * kQuad;
    for (Index b = 0; b < layout_.blocks; ++b, from += kQ4_0Bytes, to += layout_.group_bytes) {
      write_half_scale(panel, b, lane, row, from);
      for (Index j = 0; j < 4; ++j) std::memcpy(to + j * kCacheLine, from + 2 + j * kQuad, 4);
    }
  }

  // Converts codes of any width to unsigned codes around the panel's zero point.
  std::vector<std::uint8_t> read_codes(Index row) const {
    const QuantSpec& spec = stored_.quant.spec;
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(layout_.blocks * kBlockCols));
    stored_.quant.row_codes(row, std::span(codes).first(static_cast<std::size_t>(stored_.cols)));
    if (!spec.symmetric) return codes;
    const int half = 1 << (spec.bits - 1);
    for (std::uint8_t& code : codes) {
      int value = (code ^ half) - half;
      if (spec.kind == CodeKind::Log)
        value = static_cast<int>(level_of(spec, value) / smallest_level(spec));
      code = static_cast<std::uint8_t>(value + layout_.zero_point);
    }
    return codes;
  }

  void write_canonical(Index row, Index lane, std::byte* panel) const {
    const Index groups = ceil_div(layout_.blocks, layout_.blocks_per_group);
    for (Index g = 0; g < groups; ++g) {
      const float stored_scale = stored_.quant.scale_at(row, g);
      require_finite_scale(stored_scale, row, g);
      const float scale = stored_scale * smallest_level(stored_.quant.spec);
      std::byte* const record = panel + record_at(layout_, g);
      if (layout_.half_scales) {
        const std::uint16_t bits = float_to_f16(scale);
        std::memcpy(record + lane * 2, &bits, 2);
      } else {
        std::memcpy(record + lane * 4, &scale, 4);
      }
      if (layout_.zeros_offset != 0) {
        record[layout_.zeros_offset + lane] = static_cast<std::byte>(stored_.quant.zero_at(row, g));
      }
    }
    const std::vector<std::uint8_t> codes = read_codes(row);
    for (Index b = 0; b < layout_.blocks; ++b) {
      scatter(codes.data() + b * kBlockCols, panel + codes_of(layout_, b) + lane * kQuad);
    }
  }

  void scatter(const std::uint8_t* block, std::byte* to) const {
    if (layout_.kind == PanelKind::Code8) return scatter8(block, to);
    scatter4(block, to);
    scatter_upper(block, upper_bits(layout_.kind), to + kNibbleBytes);
  }

  static void scatter8(const std::uint8_t* block, std::byte* to) {
    for (Index quad = 0; quad < 8; ++quad) {
      std::memcpy(to + quad * kCacheLine, block + quad * kQuad, 4);
    }
  }

  static void scatter4(const std::uint8_t* block, std::byte* to) {
    for (Index i = 0; i < kBlockCols / 2; ++i) {
      to[i / kQuad * kCacheLine + i % kQuad] =
          static_cast<std::byte>((block[i] & 15) | (block[i + kBlockCols / 2] << 4));
    }
  }

  static void scatter_upper(const std::uint8_t* block, int bits, std::byte* to) {
    for (Index i = 0; i < bits * kQuad; ++i) {
      int upper = 0;
      for (Index q = 0; q < kBlockCols / kQuad; q += bits) {
        upper |= block[q * kQuad + i] >> 4 << q;
      }
      to[i / kQuad * kCacheLine + i % kQuad] = static_cast<std::byte>(upper);
    }
  }

  const StoredMatrix& stored_;
  const PanelLayout& layout_;
};

void check_stored(const StoredMatrix& stored) {
  HONE_CHECK(stored.rows >= 0 && stored.cols >= 0, kOp, "sizes >= 0",
             concat("[", stored.rows, ", ", stored.cols, "]"));
  if (stored.layout == WeightLayout::Canonical) {
    HONE_CHECK(stored.quant.rows == stored.rows && stored.quant.cols == stored.cols, kOp,
               concat("codes of [", stored.rows, ", ", stored.cols, "]"),
               concat("[", stored.quant.rows, ", ", stored.quant.cols, "]"));
    return;
  }
  const bool dense = stored.layout == WeightLayout::Dense;
  const GgufTypeInfo& info = gguf_type_info(static_cast<std::uint32_t>(stored.block_type), kOp);
  const Index block = dense ? 1 : info.block;
  const Index bytes = dense ? bytes_of(stored.dtype) : info.bytes;
  const Index needed = checked_mul(checked_mul(stored.rows, stored.cols, kOp) / block, bytes, kOp);
  HONE_CHECK(static_cast<Index>(stored.bytes.size()) == needed, kOp, concat(needed, " bytes"),
             stored.bytes.size());
}

}  // namespace

// Without memory.
PackedMatrix PackedMatrix::describe(const StoredMatrix& stored, bool gate_up) {
  PackedMatrix packed;
  packed.layout_ = lay_out(stored);
  packed.rows_ = stored.rows;
  packed.gate_up_ = gate_up;
  if (stored.act_int8 && packed.layout_.has_codes()) packed.preferred_act_ = Act::Int8;
  return packed;
}

PackedMatrix PackedMatrix::allocate(const StoredMatrix& stored, bool gate_up) {
  check_stored(stored);
  PackedMatrix packed = describe(stored, gate_up);
  packed.panels_ = Buffer(checked_mul(packed.panels(), packed.layout_.panel_bytes, kOp));
  return packed;
}

PackedMatrix PackedMatrix::over(const StoredMatrix& stored, bool gate_up,
                                std::span<const std::byte> panels) {
  PackedMatrix packed = describe(stored, gate_up);
  HONE_CHECK(static_cast<Index>(panels.size()) == packed.bytes(), "packed matrix",
             concat(packed.bytes(), " bytes of panels"), panels.size());
  HONE_REQUIRE(reinterpret_cast<std::uintptr_t>(panels.data()) % kCacheLine == 0, "packed matrix",
               "The panels are not aligned to 64 bytes.");
  packed.outside_ = panels.data();
  return packed;
}

Index PackedMatrix::packed_bytes(const StoredMatrix& stored, bool gate_up) {
  return describe(stored, gate_up).bytes();
}

Index PackedMatrix::panels() const { return ceil_div(rows_, kPanelRows) * (gate_up_ ? 2 : 1); }

std::string PackedMatrix::variant() const {
  switch (layout_.kind) {
    case PanelKind::F32:
      return "f32";
    case PanelKind::F16:
      return "f16";
    case PanelKind::BF16:
      return "bf16";
    case PanelKind::Code8:
      return "q8x16";
    case PanelKind::Code4:
      return "q4x16";
    case PanelKind::Min5:
      return "q5x16min";
    case PanelKind::Min4:
      return "q4x16min";
    case PanelKind::Half6:
      return "q6x16half";
  }
  fail(ErrorCategory::Internal, kOp, "The panel has an unknown kind.");
}

void PackedMatrix::unpack_row(Index row, std::span<float> out) const {
  HONE_CHECK(row >= 0 && row < (gate_up_ ? 2 : 1) * rows_, "unpack_row", "a row of the matrix",
             row);
  HONE_CHECK(static_cast<Index>(out.size()) == cols(), "unpack_row", concat(cols(), " values"),
             out.size());
  const PanelLane at = locate_row(*this, row);
  for (Index k = 0; k < cols(); ++k) {
    out[static_cast<std::size_t>(k)] = panel_value(layout_, panel(at.panel), at.lane, k);
  }
}

PackedMatrix pack(const StoredMatrix& stored, Executor& executor) {
  HONE_TRACE_ZONE("pack", {"rows", stored.rows}, {"cols", stored.cols},
                  {"bytes", stored.stored_bytes()});
  PackedMatrix packed = PackedMatrix::allocate(stored, false);
  const PanelWriter writer(stored, packed.layout_);
  executor.parallel_for(packed.panels(), 4, [&](Index begin, Index end, int) {
    for (Index i = begin; i < end; ++i) {
      writer.write(i * kPanelRows, packed.panels_.data() + i * packed.layout_.panel_bytes);
    }
  });
  return packed;
}

PackedMatrix pack_gate_up(const StoredMatrix& gate, const StoredMatrix& up, Executor& executor,
                          const std::function<void()>& gate_is_packed) {
  HONE_TRACE_ZONE("pack", {"rows", gate.rows + up.rows}, {"cols", gate.cols},
                  {"bytes", gate.stored_bytes() + up.stored_bytes()});
  HONE_CHECK(gate.rows == up.rows && gate.cols == up.cols, "pack_gate_up",
             concat("up of [", gate.rows, ", ", gate.cols, "]"),
             concat("[", up.rows, ", ", up.cols, "]"));
  PackedMatrix packed = PackedMatrix::allocate(gate, true);
  check_stored(up);
  HONE_REQUIRE(lay_out(up) == packed.layout_, "pack_gate_up",
               "Gate and up have different formats.");
  const auto write_half = [&](const StoredMatrix& stored, Index half) {
    const PanelWriter writer(stored, packed.layout_);
    executor.parallel_for(packed.panels() / 2, 4, [&](Index begin, Index end, int) {
      for (Index i = begin; i < end; ++i) {
        writer.write(i * kPanelRows,
                     packed.panels_.data() + (2 * i + half) * packed.layout_.panel_bytes);
      }
    });
  };
  write_half(gate, 0);
  if (gate_is_packed) gate_is_packed();
  write_half(up, 1);
  return packed;
}

}  // namespace hone::kernels
