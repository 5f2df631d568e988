// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/matrix_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "hone/core/bf16.h"
#include "hone/core/check.h"

namespace hone::model_io {
namespace {

constexpr float kEndOfF16 = 65520;  // the least value that is rounded to infinity
constexpr Index kBlock = 32;        // number of elements that share a scale in Q8_0 and Q4_0
constexpr std::array<std::pair<StoreType, std::string_view>, 5> kNames{{{StoreType::F32, "f32"},
                                                                        {StoreType::F16, "f16"},
                                                                        {StoreType::BF16, "bf16"},
                                                                        {StoreType::Q8_0, "q8_0"},
                                                                        {StoreType::Q4_0, "q4_0"}}};

Index bytes_per_row(StoreType type, Index cols) {
  switch (type) {
    case StoreType::F32:
      return cols * 4;
    case StoreType::F16:
    case StoreType::BF16:
      return cols * 2;
    case StoreType::Q8_0:
      return cols / kQ8_0Block * kQ8_0Bytes;
    case StoreType::Q4_0:
      break;
  }
  return cols / kQ4_0Block * kQ4_0Bytes;
}

[[noreturn]] void refuse_value(const NamedMatrix& tensor, StoreType type, float value) {
  fail_corrupt(tensor.name, concat("values in the range of ", name_of(type)), concat(value));
}

void encode_row(const NamedMatrix& tensor, std::span<const float> row, StoreType type,
                std::span<std::byte> out) {
  const auto store = [&](auto convert) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::uint16_t bits = convert(row[i]);
      std::memcpy(out.data() + 2 * i, &bits, sizeof bits);
    }
  };
  switch (type) {
    case StoreType::F32:
      std::memcpy(out.data(), row.data(), row.size_bytes());
      return;
    case StoreType::F16:
      for (const float value : row) {
        if (std::abs(value) >= kEndOfF16 && std::isfinite(value)) refuse_value(tensor, type, value);
      }
      return store(float_to_f16);
    case StoreType::BF16:
      return store(float_to_bf16);
    case StoreType::Q8_0:
    case StoreType::Q4_0: {
      // The scale of a block is its largest value divided by 127 (Q8_0) or 8 (Q4_0), and must not
      // overflow f16.
      const float limit = kEndOfF16 * (type == StoreType::Q8_0 ? 127 : 8);
      for (const float value : row) {
        if (!(std::abs(value) < limit)) refuse_value(tensor, type, value);
      }
      return type == StoreType::Q8_0 ? encode_q8_0(row, out) : encode_q4_0(row, out);
    }
  }
}

// Writes one row of canonical codes as GGUF blocks: the same codes and scales in another order.
void canonical_row_to_blocks(const QuantMatrixView& matrix, Index row, StoreType type,
                             std::span<std::byte> out) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(matrix.cols));
  matrix.row_codes(row, codes);
  const Index groups = matrix.spec.groups_per_row(matrix.cols);
  const std::byte* scale = matrix.scales.data() + row * groups * 2;
  std::byte* block = out.data();
  for (std::size_t at = 0; at < codes.size(); at += kBlock, scale += 2) {
    std::memcpy(block, scale, 2);
    block += 2;
    if (type == StoreType::Q8_0) {
      std::memcpy(block, codes.data() + at, kBlock);
      block += kBlock;
      continue;
    }
    for (std::size_t j = 0; j < kBlock / 2; ++j) {  // Q4_0 stores the two's complement c as c + 8
      const int low = codes[at + j] ^ 8, high = codes[at + j + kBlock / 2] ^ 8;
      *block++ = static_cast<std::byte>(low | high << 4);
    }
  }
}

// The reverse: appends one row of blocks to canonical codes and scales.
void append_blocks(std::span<const std::byte> blocks, StoreType type, CanonicalMatrix& out) {
  const auto block_bytes = static_cast<std::size_t>(bytes_per_row(type, kBlock));
  for (std::size_t at = 0; at < blocks.size(); at += block_bytes) {
    const auto block = blocks.subspan(at, block_bytes);
    out.scales.insert(out.scales.end(), block.begin(), block.begin() + 2);
    const auto packed = block.subspan(2);
    if (type == StoreType::Q8_0) {
      out.codes.insert(out.codes.end(), packed.begin(), packed.end());
      continue;
    }
    std::array<std::uint8_t, kBlock> codes{};
    for (std::size_t j = 0; j < kBlock / 2; ++j) {
      codes[j] = std::to_integer<std::uint8_t>((packed[j] & std::byte{15}) ^ std::byte{8});
      codes[j + kBlock / 2] = std::to_integer<std::uint8_t>((packed[j] >> 4) ^ std::byte{8});
    }
    std::array<std::byte, kBlock / 2> bytes{};
    pack_codes(codes, 4, bytes);
    out.codes.insert(out.codes.end(), bytes.begin(), bytes.end());
  }
}

void encode_vector(const NamedMatrix& tensor, const RowOrder& order, StoreType type,
                   ByteSink sink) {
  std::vector<float> stored(static_cast<std::size_t>(tensor.matrix.cols)), row(stored.size());
  decode_row(tensor.matrix, 0, stored);
  for (std::size_t i = 0; i < row.size(); ++i)
    row[i] = stored[static_cast<std::size_t>(order.source(static_cast<Index>(i)))];
  std::vector<std::byte> bytes(static_cast<std::size_t>(bytes_per_row(type, tensor.matrix.cols)));
  encode_row(tensor, row, type, bytes);
  sink(bytes);
}

// Row `row` of a table with `per_row` bytes per row.
std::span<const std::byte> row_of(std::span<const std::byte> table, Index row, Index per_row) {
  return table.subspan(static_cast<std::size_t>(row * per_row), static_cast<std::size_t>(per_row));
}

void append(std::vector<std::byte>& out, std::span<const std::byte> more) {
  out.insert(out.end(), more.begin(), more.end());
}

}  // namespace

std::string_view name_of(StoreType type) {
  for (const auto& [known, name] : kNames) {
    if (known == type) return name;
  }
  return "";
}

StoreType parse_store_type(std::string_view name) {
  for (const auto& [type, known] : kNames) {
    if (known == name) return type;
  }
  fail_argument("dtype", "f32, f16, bf16, q8_0 or q4_0", name);
}

RowOrder::RowOrder(const Architecture& architecture, std::string_view tensor, RopePairing target) {
  if (architecture.rope.pairing == target) return;
  if (tensor.find(".self_attn.q_proj.") == std::string_view::npos &&
      tensor.find(".self_attn.k_proj.") == std::string_view::npos)
    return;
  head_dim_ = architecture.head_dim;
  rotary_dims_ = architecture.rope.rotary_dims;
  target_ = target;
}

Index RowOrder::source(Index row) const {
  if (is_identity()) return row;
  const Index inside = row % head_dim_, begin = row - inside, half = rotary_dims_ / 2;
  if (inside >= rotary_dims_) return row;
  if (target_ == RopePairing::Adjacent) return begin + inside % 2 * half + inside / 2;
  return begin + inside % half * 2 + inside / half;
}

std::optional<StoreType> stored_type(const StoredMatrix& matrix) {
  if (matrix.layout == WeightLayout::GgufBlocks) {
    if (matrix.block_type == GgufType::Q8_0) return StoreType::Q8_0;
    if (matrix.block_type == GgufType::Q4_0) return StoreType::Q4_0;
    return std::nullopt;
  }
  if (matrix.layout == WeightLayout::Canonical) {
    if (matrix.cols % kBlock != 0) return std::nullopt;
    if (matrix.quant.spec == canonical_spec(StoreType::Q8_0)) return StoreType::Q8_0;
    if (matrix.quant.spec == canonical_spec(StoreType::Q4_0)) return StoreType::Q4_0;
    return std::nullopt;
  }
  switch (matrix.dtype) {
    case Dtype::Float32:
      return StoreType::F32;
    case Dtype::Float16:
      return StoreType::F16;
    case Dtype::BFloat16:
      return StoreType::BF16;
    default:
      return std::nullopt;
  }
}

QuantSpec canonical_spec(StoreType type) {
  QuantSpec spec;
  spec.bits = type == StoreType::Q8_0 ? 8 : 4;
  spec.span = ScaleSpan::Group;
  spec.group = kBlock;
  spec.symmetric = true;
  spec.scale_dtype = Dtype::Float16;
  return spec;
}

void encode_tensor(const NamedMatrix& tensor, const RowOrder& order, StoreType type,
                   ByteSink sink) {
  if (tensor.is_vector) return encode_vector(tensor, order, type, sink);
  const StoredMatrix& matrix = tensor.matrix;
  const Index per_row = bytes_per_row(type, matrix.cols);
  const bool same = stored_type(matrix) == type;
  std::vector<float> values(same ? 0 : static_cast<std::size_t>(matrix.cols));
  std::vector<std::byte> bytes(static_cast<std::size_t>(per_row));
  for (Index row = 0; row < matrix.rows; ++row) {
    const Index from = order.source(row);
    if (same && matrix.layout != WeightLayout::Canonical) {
      sink(row_of(matrix.bytes, from, per_row));
    } else if (same) {
      canonical_row_to_blocks(matrix.quant, from, type, bytes);
      sink(bytes);
    } else {
      decode_row(matrix, from, values);
      encode_row(tensor, values, type, bytes);
      sink(bytes);
    }
  }
}

void copy_blocks(const StoredMatrix& matrix, const RowOrder& order, ByteSink sink) {
  const auto per_row = static_cast<Index>(matrix.bytes.size()) / matrix.rows;
  for (Index row = 0; row < matrix.rows; ++row)
    sink(row_of(matrix.bytes, order.source(row), per_row));
}

CanonicalMatrix permute_canonical(const StoredMatrix& matrix, const RowOrder& order) {
  const QuantMatrixView& quant = matrix.quant;
  const Index groups = quant.spec.groups_per_row(quant.cols);
  const Index code_bytes = quant.spec.code_bytes_per_row(quant.cols);
  const bool one_scale = quant.spec.span == ScaleSpan::Tensor;
  CanonicalMatrix out;
  out.codes.reserve(quant.codes.size());
  for (Index row = 0; row < quant.rows; ++row) {
    const Index from = order.source(row);
    append(out.codes, row_of(quant.codes, from, code_bytes));
    if (one_scale) continue;
    append(out.scales, row_of(quant.scales, from, groups * bytes_of(quant.spec.scale_dtype)));
    if (!quant.spec.symmetric) append(out.zeros, row_of(quant.zeros, from, groups));
  }
  if (one_scale) {
    append(out.scales, quant.scales);
    append(out.zeros, quant.zeros);
  }
  return out;
}

CanonicalMatrix encode_canonical(const NamedMatrix& tensor, const RowOrder& order, StoreType type) {
  CanonicalMatrix out;
  const Index blocks = tensor.matrix.rows * (tensor.matrix.cols / kBlock);
  out.scales.reserve(static_cast<std::size_t>(blocks * 2));
  out.codes.reserve(static_cast<std::size_t>(blocks * (bytes_per_row(type, kBlock) - 2)));
  encode_tensor(tensor, order, type,
                [&](std::span<const std::byte> row) { append_blocks(row, type, out); });
  return out;
}

}  // namespace hone::model_io
