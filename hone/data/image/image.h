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

// An image in 8-bit RGB, row by row with interleaved channels.
struct Image {
  Index height = 0, width = 0;
  std::vector<std::uint8_t> pixels;
};

// The luma of ITU-R BT.601 in 8 bits, as Pillow's convert("L") rounds it.
constexpr int luma(int red, int green, int blue) {
  return (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16;
}

// Larger images are rejected, and so are images with more pixels than a file of its format and size
// can hold: 512 for each byte of a JPEG, 8256 of a PNG with 1 bit per pixel, 344 of one with 24.
// Decoding allocates at most 3 bytes per pixel, and 8 more for a progressive JPEG.
inline constexpr Index kMaxPixels = Index{1} << 26;

// Decodes a JPEG (gray, YCbCr, RGB, CMYK, YCCK), a PNG of any kind or a binary PGM or PPM of 8
// bits, recognized by content, to the pixels of Pillow's convert("RGB"): transparency is dropped,
// gAMA and color profiles change no value, CMYK is taken as inverted, as Photoshop writes it, and a
// picture is not rotated as its EXIF data says. Of samples of 16 bits, the high byte is taken,
// also of gray ones, which Pillow clips to white. A JPEG may be scaled down by a power of two as
// long as its short side stays at least `least_side`; 0 disables that. `where` names the file in
// errors: Error{CorruptFile} for images that are damaged or cut short and for other content. Bytes
// between the markers of a JPEG that stand for no pixel are passed over, as by Pillow.
Image decode_image(std::span<const std::byte> file, std::string_view where, Index least_side = 0);

// The image as a PNG of 8-bit RGB. Error{InvalidArgument} if it has no pixels.
std::vector<std::byte> encode_png(const Image& image);

// Whether the extension is .jpg, .jpeg, .png, .ppm or .pgm in upper or lower case.
bool has_image_name(const std::filesystem::path& path);

// Crops to the largest centered square and scales it to side x side with a triangle filter as wide
// as the step between samples (Pillow's BILINEAR). Writes planes [3, side, side].
void fit_to_square(const Image& image, Index side, std::span<std::uint8_t> planes);

// Decodes an image file and fits it to a square of this shape, with one channel (luma of ITU-R
// BT.601, as Pillow's "L") or three. Writes planes [channels, side, side]. Throws as
// decode_image().
void decode_square(std::span<const std::byte> file, std::string_view where, const ImageShape& shape,
                   std::span<std::uint8_t> planes);

}  // namespace hone::data
