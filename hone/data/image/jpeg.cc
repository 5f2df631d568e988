// SPDX-License-Identifier: Apache-2.0
#include "hone/data/image/libjpeg.h"

#include <jerror.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "hone/core/check.h"
#include "hone/core/index.h"
#include "hone/data/image/codecs.h"
#include "hone/data/image/guarded_calls.h"

namespace hone::data {
namespace {

// No Huffman code is shorter than a bit, and the largest component has one for each 64 pixels.
constexpr Index kPixelsPerByte = 512;
// Progressive files of a few bytes a scan would take very long.
constexpr int kMaxScans = 100, kUsualScans = 16;
constexpr Index kMaxScannedPixels = Index{1} << 30;  // in all scans; the usual number is allowed

// Warnings after which all pixels are still those that were encoded.
constexpr std::array<int, 4> kHarmlessWarnings = {JWRN_EXTRANEOUS_DATA, JWRN_ADOBE_XFORM,
                                                  JWRN_JFIF_MAJOR, JWRN_NOT_SEQUENTIAL};

// The decoder, and what its functions need. The library keeps pointers to its members.
struct Decoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  GuardedCalls calls;

  Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { jpeg_destroy_decompress(&info); }

  template <typename Calls>
  void run(std::string_view where, const Calls& step) {
    if (calls.run(step)) return;
    if (errors.msg_code == JERR_OUT_OF_MEMORY) {
      fail(ErrorCategory::Resource, where, "There is no memory to decode the JPEG.");
    }
    fail_corrupt(where, concat("The JPEG is damaged: ", calls.message.data()));
  }
};

[[noreturn]] void take_error(j_common_ptr info) {
  auto& calls = *static_cast<GuardedCalls*>(info->client_data);
  info->err->format_message(info, calls.message.data());
  calls.give_up();
}

// A file that is cut short is only a warning to the library.
void take_warning(j_common_ptr info, int level) {
  const auto* const end = kHarmlessWarnings.end();
  if (level < 0 && std::find(kHarmlessWarnings.begin(), end, info->err->msg_code) == end) {
    take_error(info);
  }
}

void watch_scans(j_common_ptr info) {
  const auto& image = *reinterpret_cast<j_decompress_ptr>(info);
  const Index pixels = Index{image.image_height} * Index{image.image_width};
  const auto most = std::clamp<Index>(kMaxScannedPixels / pixels, kUsualScans, kMaxScans);
  if (image.input_scan_number <= most) return;
  auto& calls = *static_cast<GuardedCalls*>(info->client_data);
  std::snprintf(calls.message.data(), calls.message.size(), "more than %d scans",
                static_cast<int>(most));
  calls.give_up();
}

Decoder::Decoder() {
  info.err = jpeg_std_error(&errors);
  info.client_data = &calls;
  errors.error_exit = take_error;
  errors.emit_message = take_warning;
  progress.progress_monitor = watch_scans;
}

// The largest of 8, 4, 2 and 1 by which both sides can be divided and stay at least `least_side`
// long.
unsigned choose_divisor(Index height, Index width, Index least_side) {
  Index divisor = 8;
  while (divisor > 1 &&
         (least_side == 0 || ceil_div(std::min(height, width), divisor) < least_side)) {
    divisor /= 2;
  }
  return static_cast<unsigned>(divisor);
}

// One row of inverted CMYK, which is what Photoshop writes and Pillow assumes, in Pillow's
// arithmetic: of the ink that black leaves.
void convert_cmyk(const std::uint8_t* cmyk, std::span<std::uint8_t> rgb) {
  for (std::size_t i = 0; i < rgb.size(); ++i) {
    const int light = cmyk[i / 3 * 4 + 3];
    const int product = (255 - cmyk[i / 3 * 4 + i % 3]) * light + 128;
    rgb[i] = static_cast<std::uint8_t>(std::max(0, light - (((product >> 8) + product) >> 8)));
  }
}

// Decodes the rows of an image that has been started.
void read_rows(jpeg_decompress_struct& info, Image& image, std::uint8_t* cmyk_row) {
  const auto row_bytes = static_cast<std::size_t>(3 * image.width);
  while (info.output_scanline < info.output_height) {
    const std::span<std::uint8_t> rgb =
        std::span(image.pixels).subspan(info.output_scanline * row_bytes, row_bytes);
    JSAMPROW row = cmyk_row == nullptr ? rgb.data() : cmyk_row;
    jpeg_read_scanlines(&info, &row, 1);
    if (cmyk_row != nullptr) convert_cmyk(cmyk_row, rgb);
  }
  jpeg_finish_decompress(&info);
}

}  // namespace

Image decode_jpeg(std::span<const std::byte> file, std::string_view where, Index least_side) {
  Decoder decoder;
  jpeg_decompress_struct& info = decoder.info;
  const auto* data = reinterpret_cast<const unsigned char*>(file.data());
  decoder.run(where, [&] {
    jpeg_create_decompress(&info);
    info.progress = &decoder.progress;
    jpeg_mem_src(&info, data, file.size());
    jpeg_read_header(&info, TRUE);
  });
  const Index height = info.image_height, width = info.image_width;
  check_size(height, width, {file.size(), kPixelsPerByte}, where);
  const bool is_cmyk = info.num_components == 4;
  info.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
  info.scale_num = 1;
  info.scale_denom = choose_divisor(height, width, least_side);
  decoder.run(where, [&] { jpeg_start_decompress(&info); });
  Image image =
      make_image(info.output_height, info.output_width, {file.size(), kPixelsPerByte}, where);
  std::vector<std::uint8_t> cmyk(is_cmyk ? static_cast<std::size_t>(4 * image.width) : 0);
  decoder.run(where, [&] { read_rows(info, image, is_cmyk ? cmyk.data() : nullptr); });
  return image;
}

}  // namespace hone::data
