// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zlib.h>

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "hone/data/image/libjpeg.h"
#include "tests/support/image_files.h"

// Writes image files that need a library.
namespace hone::test {

inline std::string gzip(const std::string& content) {
  z_stream stream{};
  constexpr int kGzip = 16 + MAX_WBITS, kMemory = 8;
  if (deflateInit2(&stream, 6, Z_DEFLATED, kGzip, kMemory, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  std::string out(deflateBound(&stream, content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string big_endian(std::uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
  return out;
}

inline std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<std::uint32_t>(data.size())) + body +
         big_endian(static_cast<std::uint32_t>(crc));
}

struct PngHeader {
  Index height = 0, width = 0;
  int depth = 8, color_type = 2;  // 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGBA
  bool interlaced = false;
};

// `filtered` are the scan lines with their filter bytes; `chunks` stand before them.
inline std::string png_of_lines(const PngHeader& header, const std::string& filtered,
                                const std::string& chunks) {
  std::string packed(compressBound(filtered.size()), '\0');
  uLongf size = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(filtered.data()), filtered.size());
  packed.resize(size);
  std::string head = big_endian(static_cast<std::uint32_t>(header.width)) +
                     big_endian(static_cast<std::uint32_t>(header.height));
  head += {static_cast<char>(header.depth), static_cast<char>(header.color_type), 0, 0,
           static_cast<char>(header.interlaced)};
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", head) + chunks + png_chunk("IDAT", packed) +
         png_chunk("IEND", "");
}

// `rows` are the scan lines as packed by PNG, without filter bytes.
inline std::string png_file(Index height, Index width, int depth, int color_type,
                            const std::string& rows, const std::string& palette = {},
                            const std::string& chunks = {}) {
  const auto row_bytes = rows.size() / static_cast<std::size_t>(height);
  std::string filtered;
  for (Index y = 0; y < height; ++y) {
    filtered += '\0';
    filtered += rows.substr(static_cast<std::size_t>(y) * row_bytes, row_bytes);
  }
  return png_of_lines({height, width, depth, color_type}, filtered,
                      (palette.empty() ? std::string() : png_chunk("PLTE", palette)) + chunks);
}

// 8-bit RGB in the seven passes of Adam7.
inline std::string interlaced_png_file(Index height, Index width, const std::string& pixels) {
  struct Pass {
    Index top, left, down, right;
  };
  std::string filtered;
  for (const Pass& pass : {Pass{0, 0, 8, 8}, Pass{0, 4, 8, 8}, Pass{4, 0, 8, 4}, Pass{0, 2, 4, 4},
                           Pass{2, 0, 4, 2}, Pass{0, 1, 2, 2}, Pass{1, 0, 2, 1}}) {
    for (Index y = pass.top; y < height && pass.left < width; y += pass.down) {
      filtered += '\0';
      for (Index x = pass.left; x < width; x += pass.right) {
        filtered += pixels.substr(static_cast<std::size_t>(3 * (y * width + x)), 3);
      }
    }
  }
  return png_of_lines({.height = height, .width = width, .interlaced = true}, filtered, "");
}

struct JpegOptions {
  bool progressive = false;
  int quality = 98;
  J_COLOR_SPACE stored = JCS_UNKNOWN;  // the library's choice; of four channels JCS_CMYK, JCS_YCCK
  bool has_adobe_marker = true;        // where the library would write one
  bool separate_scans = false;         // one for each channel
};

// `pixels` are interleaved: one channel, RGB, or four channels that are stored as they are.
inline std::string jpeg_file(Index height, Index width, const std::string& pixels,
                             const JpegOptions& options) {
  const auto channels = static_cast<int>(static_cast<Index>(pixels.size()) / (height * width));
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);  // ends the program
  jpeg_create_compress(&info);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &data, &size);
  info.image_height = static_cast<JDIMENSION>(height);
  info.image_width = static_cast<JDIMENSION>(width);
  info.input_components = channels;
  info.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (options.stored != JCS_UNKNOWN) jpeg_set_colorspace(&info, options.stored);
  for (int c = 0; c < info.num_components; ++c) {
    info.comp_info[c].h_samp_factor = info.comp_info[c].v_samp_factor = 1;
  }
  if (!options.has_adobe_marker) info.write_Adobe_marker = FALSE;
  jpeg_set_quality(&info, options.quality, TRUE);
  if (options.progressive) jpeg_simple_progression(&info);
  constexpr int kLastCoefficient = 63;
  std::array<jpeg_scan_info, 4> scans = {};
  for (int c = 0; c < 4; ++c) {
    scans.at(static_cast<std::size_t>(c)) = {1, {c}, 0, kLastCoefficient, 0, 0};
  }
  if (options.separate_scans) {
    info.scan_info = scans.data();
    info.num_scans = info.num_components;
  }
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    const auto at =
        static_cast<std::size_t>(info.next_scanline) * static_cast<std::size_t>(width * channels);
    auto* row = reinterpret_cast<unsigned char*>(const_cast<char*>(pixels.data() + at));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string out(reinterpret_cast<const char*>(data), size);
  std::free(data);
  return out;
}

inline std::string jpeg_file(Index height, Index width, const std::string& pixels,
                             bool progressive = false) {
  return jpeg_file(height, width, pixels, JpegOptions{.progressive = progressive});
}

}  // namespace hone::test
