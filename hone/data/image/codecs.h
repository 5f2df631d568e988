// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/data/image/image.h"

namespace hone::data {

// Like decode_image(), for one format each.
Image decode_jpeg(std::span<const std::byte> file, std::string_view where, Index least_side);
Image decode_png(std::span<const std::byte> file, std::string_view where);
Image decode_netpbm(std::span<const std::byte> file, std::string_view where);

// An image of this size with memory for its pixels. Throws Error{CorruptFile} if the size is empty
// or exceeds the limits of image.h.
Image make_image(Index height, Index width, std::size_t file_bytes, std::string_view where);
// Only checks the size.
void check_size(Index height, Index width, std::size_t file_bytes, std::string_view where);

}  // namespace hone::data
