// SPDX-License-Identifier: Apache-2.0
#include <png.h>

#include "hone/core/check.h"
#include "hone/data/image/codecs.h"

namespace hone::data {
namespace {

// Frees the image in every case. After a failure, libpng has freed it already, which is harmless.
struct PngImage {
  png_image image{};
  PngImage() { image.version = PNG_IMAGE_VERSION; }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
  ~PngImage() { png_image_free(&image); }

  void check(int done, std::string_view where) const {
    if (done == 0) fail_corrupt(where, concat("The PNG is damaged: ", image.message));
  }
};

}  // namespace

Image decode_png(std::span<const std::byte> file, std::string_view where) {
  PngImage reader;
  reader.check(png_image_begin_read_from_memory(&reader.image, file.data(), file.size()), where);
  Image image = make_image(reader.image.height, reader.image.width, file.size(), where);
  reader.image.format = PNG_FORMAT_RGB;
  const png_color white = {255, 255, 255};
  reader.check(png_image_finish_read(&reader.image, &white, image.pixels.data(),
                                     static_cast<png_int_32>(3 * image.width), nullptr),
               where);
  return image;
}

std::vector<std::byte> encode_png(const Image& image) {
  HONE_CHECK(image.height > 0 && image.width > 0 &&
                 static_cast<Index>(image.pixels.size()) == 3 * image.height * image.width,
             "encode_png", "3 values for each of one or more pixels", image.pixels.size());
  PngImage writer;
  writer.image.width = static_cast<png_uint_32>(image.width);
  writer.image.height = static_cast<png_uint_32>(image.height);
  writer.image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(writer.image);
  std::vector<std::byte> file(size);
  const auto row = static_cast<png_int_32>(3 * image.width);
  if (png_image_write_to_memory(&writer.image, file.data(), &size, 0, image.pixels.data(), row,
                                nullptr) == 0) {
    fail(ErrorCategory::Internal, "encode_png", concat("libpng says: ", writer.image.message));
  }
  file.resize(size);
  return file;
}

}  // namespace hone::data
