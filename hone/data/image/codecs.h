// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/data/image/image.h"

namespace hone::data {

// Like decode_image(), for one format each.
Image decode_jpeg(std::span<const std::byte> file, std::string_view where, Index least_side);
Image decode_png(std::span<const std::byte> file, std::string_view where);
Image decode_netpbm(std::span<const std::byte> file, std::string_view where);

// What a file can hold at most.
struct FileLimit {
  std::size_t bytes = 0;
  Index pixels_per_byte = 1;
};
// An image of this size with memory for its pixels. Throws Error{CorruptFile} if the size is empty
// or exceeds kMaxPixels or what the file can hold.
Image make_image(Index height, Index width, FileLimit file, std::string_view where);
// Only checks the size.
void check_size(Index height, Index width, FileLimit file, std::string_view where);

}  // namespace hone::data
