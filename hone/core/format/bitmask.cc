// SPDX-License-Identifier: Apache-2.0
#include "hone/core/format/bitmask.h"

#include <algorithm>
#include <cstring>

#include "hone/core/check.h"
#include "hone/core/format/matrix_type.h"

namespace hone {
namespace {

constexpr double kWorthwhile = 0.95;  // of the bytes of all codes
constexpr Index kSampledRows = 64;

bool is_set(std::span<const std::byte> mask, Index col) {
  return (mask[static_cast<std::size_t>(col / 8)] >> (col % 8) & std::byte{1}) != std::byte{0};
}

void set(std::byte* mask, Index col) { mask[col / 8] |= std::byte{1} << (col % 8); }

// The code of a canonical matrix that stands for 0.
std::uint8_t zero_code(const QuantMatrixView& matrix, Index row, Index col) {
  const int zero = matrix.zero_at(row, col / matrix.spec.group_size(matrix.cols));
  return static_cast<std::uint8_t>(zero & ((1 << matrix.spec.bits) - 1));
}

// Sets the mask of a row and returns how many elements it keeps.
Index fill_mask(const StoredMatrix& matrix, Index row, std::vector<std::uint8_t>& codes,
                std::byte* mask) {
  Index count = 0;
  const auto keep = [&](Index col) { ++count, set(mask, col); };
  if (matrix.layout == WeightLayout::Canonical) {
    codes.resize(static_cast<std::size_t>(matrix.cols));
    matrix.quant.row_codes(row, codes);
    for (Index col = 0; col < matrix.cols; ++col)
      if (codes[static_cast<std::size_t>(col)] != zero_code(matrix.quant, row, col)) keep(col);
    return count;
  }
  const Index size = bytes_of(matrix.dtype);
  const std::byte* const from = matrix.bytes.data() + row * matrix.cols * size;
  for (Index col = 0; col < matrix.cols; ++col) {
    // A value is 0 if all bits but the sign are, which is the highest one of the last byte.
    const std::byte* const value = from + col * size;
    std::byte bits = value[size - 1] & std::byte{0x7f};
    for (Index i = 0; i + 1 < size; ++i) bits |= value[i];
    if (bits != std::byte{0}) keep(col);
  }
  return count;
}

Index kept_bytes(const StoredMatrix& matrix, Index count) {
  return matrix.layout == WeightLayout::Canonical ? ceil_div(count * matrix.quant.spec.bits, 8)
                                                  : count * bytes_of(matrix.dtype);
}

// The codes of a row, as check_quant_matrix() expects them.
void store_codes(const QuantMatrixView& matrix, std::span<const std::uint8_t> codes,
                 std::byte* to) {
  const auto size = static_cast<std::size_t>(matrix.spec.group_size(matrix.cols));
  std::vector<std::uint8_t> group(size);
  const auto bytes =
      static_cast<std::size_t>(ceil_div(static_cast<Index>(size) * matrix.spec.bits, 8));
  for (std::size_t first = 0; first < codes.size(); first += size, to += bytes) {
    const auto part = codes.subspan(first, std::min(size, codes.size() - first));
    std::ranges::fill(group, std::uint8_t{0});
    std::ranges::copy(part, group.begin());
    pack_codes(group, matrix.spec.bits, {to, bytes});
  }
}

Index count_of(std::span<const std::byte> mask, Index cols) {
  Index count = 0;
  for (Index col = 0; col < cols; ++col) count += is_set(mask, col) ? 1 : 0;
  return count;
}

}  // namespace

Index mask_bytes_per_row(Index cols) { return ceil_div(cols, 8); }

std::optional<MaskedSizes> masked_sizes(const StoredMatrix& matrix) {
  const bool is_canonical = matrix.layout == WeightLayout::Canonical;
  const bool is_dense =
      matrix.layout == WeightLayout::Dense && find_dense_type(name_of(matrix.dtype)).has_value();
  if (matrix.rows == 0 || !(is_canonical || is_dense)) return std::nullopt;
  const Index per_row = mask_bytes_per_row(matrix.cols);
  const auto all =
      static_cast<double>(is_canonical ? std::ssize(matrix.quant.codes) : std::ssize(matrix.bytes));
  std::vector<std::uint8_t> codes;
  const auto sizes_of = [&](Index step) {
    MaskedSizes sizes;
    for (Index row = 0; row < matrix.rows; row += step) {
      std::vector<std::byte> mask(static_cast<std::size_t>(per_row));
      sizes.kept += kept_bytes(matrix, fill_mask(matrix, row, codes, mask.data()));
      sizes.mask += per_row;
    }
    return sizes;
  };
  const auto saves = [&](const MaskedSizes& sizes, double share) {
    return static_cast<double>(sizes.mask + sizes.kept) < kWorthwhile * share * all;
  };
  const Index step = std::max<Index>(1, matrix.rows / kSampledRows);
  const auto sampled = static_cast<double>(ceil_div(matrix.rows, step));
  if (!saves(sizes_of(step), sampled / static_cast<double>(matrix.rows))) return std::nullopt;
  const MaskedSizes sizes = sizes_of(1);
  return saves(sizes, 1) ? std::optional(sizes) : std::nullopt;
}

void append_masked_row(const StoredMatrix& matrix, Index row, std::vector<std::byte>& mask,
                       std::vector<std::byte>& kept) {
  std::vector<std::uint8_t> codes;
  const std::size_t at = mask.size();
  mask.resize(at + static_cast<std::size_t>(mask_bytes_per_row(matrix.cols)));
  const Index count = fill_mask(matrix, row, codes, mask.data() + at);
  const std::span<const std::byte> own(mask.data() + at, mask.size() - at);
  const std::size_t to = kept.size();
  kept.resize(to + static_cast<std::size_t>(kept_bytes(matrix, count)));
  if (matrix.layout == WeightLayout::Canonical) {
    std::vector<std::uint8_t> some;
    for (Index col = 0; col < matrix.cols; ++col)
      if (is_set(own, col)) some.push_back(codes[static_cast<std::size_t>(col)]);
    return pack_codes(some, matrix.quant.spec.bits, std::span(kept).subspan(to));
  }
  const Index size = bytes_of(matrix.dtype);
  std::byte* out = kept.data() + to;
  for (Index col = 0; col < matrix.cols; ++col) {
    if (!is_set(own, col)) continue;
    std::memcpy(out, matrix.bytes.data() + (row * matrix.cols + col) * size,
                static_cast<std::size_t>(size));
    out += size;
  }
}

Buffer expand_masked(const StoredMatrix& matrix, std::span<const std::byte> mask,
                     std::span<const std::byte> kept, std::string_view where) {
  const bool is_canonical = matrix.layout == WeightLayout::Canonical;
  const Index per_row = mask_bytes_per_row(matrix.cols), size = bytes_of(matrix.dtype);
  const Index row_bytes =
      is_canonical ? matrix.quant.spec.code_bytes_per_row(matrix.cols) : matrix.cols * size;
  if (std::ssize(mask) != matrix.rows * per_row)
    fail_corrupt(where, concat("a mask of ", matrix.rows * per_row, " bytes"), concat(mask.size()));
  Buffer out(checked_mul(matrix.rows, row_bytes, where));
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(matrix.cols));
  for (Index row = 0; row < matrix.rows; ++row) {
    const auto own =
        mask.subspan(static_cast<std::size_t>(row * per_row), static_cast<std::size_t>(per_row));
    const Index count = count_of(own, matrix.cols), bytes = kept_bytes(matrix, count);
    if (std::ssize(kept) < bytes)
      fail_corrupt(where, "The mask keeps more elements than there are.");
    const std::byte* from = kept.data();
    if (is_canonical) {
      std::vector<std::uint8_t> some(static_cast<std::size_t>(count));
      unpack_codes(kept.first(static_cast<std::size_t>(bytes)), matrix.quant.spec.bits, some);
      auto next = some.begin();
      for (Index col = 0; col < matrix.cols; ++col)
        codes[static_cast<std::size_t>(col)] =
            is_set(own, col) ? *next++ : zero_code(matrix.quant, row, col);
      store_codes(matrix.quant, codes, out.data() + row * row_bytes);
    } else {
      for (Index col = 0; col < matrix.cols; ++col) {
        if (!is_set(own, col)) continue;
        std::memcpy(out.data() + row * row_bytes + col * size, from,
                    static_cast<std::size_t>(size));
        from += size;
      }
    }
    kept = kept.subspan(static_cast<std::size_t>(bytes));
  }
  if (!kept.empty()) fail_corrupt(where, "The mask keeps fewer elements than there are.");
  return out;
}

}  // namespace hone
