// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/data/image/image.h"

namespace hone::data {

// One format each; as decode_image.
Image decode_jpeg(std::span<const std::byte> file, std::string_view where, Index least_side);
Image decode_png(std::span<const std::byte> file, std::string_view where);
Image decode_netpbm(std::span<const std::byte> file, std::string_view where);

// An image of this size with room for its pixels. Error{CorruptFile} for a size that is empty or
// beyond the limits above.
Image make_image(Index height, Index width, std::size_t file_bytes, std::string_view where);
// The same check alone.
void check_size(Index height, Index width, std::size_t file_bytes, std::string_view where);

}  // namespace hone::data
