// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/format/quant_format.h"

namespace hone {

// Matrices of which many elements are 0, stored without them: a mask with bit j % 8 of byte j / 8
// of a row set where column j is kept, each row padded to a byte, and behind each other the kept
// elements of all rows. Those of dense matrices are values, those of canonical codes a bit stream
// for each row, padded to a byte. Scales and zero points stay as they are.

// The bytes of a row's mask.
Index mask_bytes_per_row(Index cols);

// The bytes of mask and kept elements. Empty if the matrix has GGUF blocks, or if too few of its
// elements are 0 to save a twentieth of its codes.
struct MaskedSizes {
  Index mask = 0, kept = 0;
};
std::optional<MaskedSizes> masked_sizes(const StoredMatrix& matrix);

// Appends the mask and the kept elements of one row.
void append_masked_row(const StoredMatrix& matrix, Index row, std::vector<std::byte>& mask,
                       std::vector<std::byte>& kept);

// Restores the elements: dense values, or canonical codes for `matrix`, whose scales and zero
// points are set. Throws Error{CorruptFile} that names `where` if mask and kept elements do not
// fit.
Buffer expand_masked(const StoredMatrix& matrix, std::span<const std::byte> mask,
                     std::span<const std::byte> kept, std::string_view where);

}  // namespace hone
