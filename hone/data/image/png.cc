// SPDX-License-Identifier: Apache-2.0
#include <png.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "hone/core/check.h"
#include "hone/data/image/codecs.h"
#include "hone/data/image/guarded_calls.h"

namespace hone::data {
namespace {

// A byte of Deflate stands for at most 1032 bytes: a match of 258 has a code of at least two bits.
constexpr Index kUnpackedBitsPerByte = 1032 * 8;

// The library keeps pointers to the members.
struct Reader {
  std::span<const std::byte> rest;
  GuardedCalls calls;
  png_structp png = nullptr;
  png_infop info = nullptr;

  explicit Reader(std::span<const std::byte> file);
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }

  template <typename Calls>
  void run(std::string_view where, const Calls& step) {
    if (calls.run(step)) return;
    fail_corrupt(where, concat("The PNG is damaged: ", calls.message.data()));
  }
};

[[noreturn]] void take_error(png_structp png, png_const_charp message) {
  auto& calls = *static_cast<GuardedCalls*>(png_get_error_ptr(png));
  std::snprintf(calls.message.data(), calls.message.size(), "%s", message);
  calls.give_up();
}

void ignore_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, std::size_t count) {
  auto& rest = *static_cast<std::span<const std::byte>*>(png_get_io_ptr(png));
  if (count > rest.size()) png_error(png, "it is cut short");
  std::memcpy(to, rest.data(), count);
  rest = rest.subspan(count);
}

Reader::Reader(std::span<const std::byte> file) : rest(file) {
  calls.run([&] {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &calls, take_error, ignore_warning);
    if (png == nullptr) return;
    info = png_create_info_struct(png);
    // Texts and profiles, which may unpack to very much, are not read.
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_read_fn(png, &rest, read_bytes);
  });
  if (info == nullptr)
    fail(ErrorCategory::Resource, "decode_png", "There is no memory for a PNG decoder.");
}

// Asks for 8-bit RGB: palettes are looked up, fewer bits are scaled, of 16 bits the high byte is
// taken, and transparency is dropped. Values are not changed by gAMA and other descriptions of
// colors. Returns how often the rows are read.
int ask_for_rgb(png_structp png, png_infop info) {
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  png_set_gray_to_rgb(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  return passes;
}

void read_rows(png_structp png, int passes, Image& image) {
  for (int pass = 0; pass < passes; ++pass) {
    for (Index y = 0; y < image.height; ++y) {
      png_read_row(png, image.pixels.data() + 3 * y * image.width, nullptr);
    }
  }
}

}  // namespace

Image decode_png(std::span<const std::byte> file, std::string_view where) {
  Reader reader(file);
  reader.run(where, [&] { png_read_info(reader.png, reader.info); });
  const Index bits =
      png_get_bit_depth(reader.png, reader.info) * png_get_channels(reader.png, reader.info);
  Image image = make_image(png_get_image_height(reader.png, reader.info),
                           png_get_image_width(reader.png, reader.info),
                           {file.size(), kUnpackedBitsPerByte / bits}, where);
  reader.run(where, [&] {
    const int passes = ask_for_rgb(reader.png, reader.info);
    if (static_cast<Index>(png_get_rowbytes(reader.png, reader.info)) != 3 * image.width) {
      png_error(reader.png, "its rows are not those of 8-bit RGB");
    }
    read_rows(reader.png, passes, image);
  });
  return image;
}

std::vector<std::byte> encode_png(const Image& image) {
  HONE_CHECK(image.height > 0 && image.width > 0 &&
                 static_cast<Index>(image.pixels.size()) == 3 * image.height * image.width,
             "encode_png", "3 values for each of one or more pixels", image.pixels.size());
  png_image writer{};
  writer.version = PNG_IMAGE_VERSION;
  writer.width = static_cast<png_uint_32>(image.width);
  writer.height = static_cast<png_uint_32>(image.height);
  writer.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(writer);
  std::vector<std::byte> file(size);
  const auto row = static_cast<png_int_32>(3 * image.width);
  if (png_image_write_to_memory(&writer, file.data(), &size, 0, image.pixels.data(), row,
                                nullptr) == 0) {
    fail(ErrorCategory::Internal, "encode_png", concat("libpng says: ", writer.message));
  }
  file.resize(size);
  return file;
}

}  // namespace hone::data
