// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "hone/core/index.h"

namespace hone::data {

struct ImageShape {
  Index channels = 0, height = 0, width = 0;

  Index values() const { return channels * height * width; }
  friend bool operator==(const ImageShape&, const ImageShape&) = default;
};

// 8-bit RGB, row by row, channels interleaved.
struct Image {
  Index height = 0, width = 0;
  std::vector<std::uint8_t> pixels;
};

// An image of more pixels is refused, and so is one of more than kMostPixelsPerByte pixels per byte
// of its file, which no encoder reaches: decoding allocates at most 3 bytes for each, and a
// progressive JPEG 6 more.
inline constexpr Index kMostPixels = Index{1} << 26;
inline constexpr Index kMostPixelsPerByte = 1024;

// JPEG (gray, YCbCr, RGB), PNG (all kinds; transparent parts over white) or binary PGM and PPM of
// 8 bits, told apart by content. A JPEG may come smaller by a power of two, its short side still at
// least `least_side`; 0: as it is. `where` names the file in errors: Error{CorruptFile} for what is
// damaged, cut short or no image, Error{Unsupported} for a CMYK JPEG.
Image decode_image(std::span<const std::byte> file, std::string_view where, Index least_side = 0);

// .jpg, .jpeg, .png, .ppm, .pgm in any case.
bool has_image_name(const std::filesystem::path& path);

// The largest centered square, scaled to side x side with a triangle filter as wide as the step
// between samples (Pillow's BILINEAR), as planes [3, side, side].
void fit_to_square(const Image& image, Index side, std::span<std::uint8_t> planes);

}  // namespace hone::data
