// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <turbojpeg.h>
#include <zlib.h>

#include <array>
#include <stdexcept>
#include <string>

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

// `rows` are the scan lines as packed by PNG, without filter bytes. The color types are 0 gray, 2
// RGB, 3 palette, 4 gray and alpha, 6 RGBA.
inline std::string png_file(Index height, Index width, int depth, int color_type,
                            const std::string& rows, const std::string& palette = {}) {
  const auto chunk = [](const std::string& type, const std::string& data) {
    const std::string body = type + data;
    const auto crc =
        crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
    return big_endian(static_cast<std::uint32_t>(data.size())) + body +
           big_endian(static_cast<std::uint32_t>(crc));
  };
  const auto row_bytes = rows.size() / static_cast<std::size_t>(height);
  std::string filtered;
  for (Index y = 0; y < height; ++y) {
    filtered += '\0';
    filtered += rows.substr(static_cast<std::size_t>(y) * row_bytes, row_bytes);
  }
  std::string packed(compressBound(filtered.size()), '\0');
  uLongf size = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(filtered.data()), filtered.size());
  packed.resize(size);
  std::string head = big_endian(static_cast<std::uint32_t>(width)) +
                     big_endian(static_cast<std::uint32_t>(height));
  head += {static_cast<char>(depth), static_cast<char>(color_type), 0, 0, 0};
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", head) +
         (palette.empty() ? std::string() : chunk("PLTE", palette)) + chunk("IDAT", packed) +
         chunk("IEND", "");
}

// `pixels` are interleaved RGB or one channel.
inline std::string jpeg_file(Index height, Index width, const std::string& pixels,
                             bool progressive = false) {
  const tjhandle handle = tjInitCompress();
  unsigned char* data = nullptr;
  unsigned long size = 0;
  const bool is_gray = static_cast<Index>(pixels.size()) == height * width;
  const int status = tjCompress2(
      handle, reinterpret_cast<const unsigned char*>(pixels.data()), static_cast<int>(width), 0,
      static_cast<int>(height), is_gray ? TJPF_GRAY : TJPF_RGB, &data, &size,
      is_gray ? TJSAMP_GRAY : TJSAMP_444, 98, progressive ? TJFLAG_PROGRESSIVE : 0);
  const std::string out(reinterpret_cast<const char*>(data), size);
  tjFree(data);
  tjDestroy(handle);
  if (status != 0) throw std::runtime_error("tjCompress2");
  return out;
}

}  // namespace hone::test
