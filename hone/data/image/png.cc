// SPDX-License-Identifier: Apache-2.0
#include <png.h>

#include "hone/core/check.h"
#include "hone/data/image/codecs.h"

namespace hone::data {
namespace {

// Frees the image in every case. After a failure, libpng has freed it already, which is harmless.
struct PngReader {
  png_image image{};
  PngReader() { image.version = PNG_IMAGE_VERSION; }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_image_free(&image); }

  void check(int done, std::string_view where) const {
    if (done == 0) fail_corrupt(where, concat("The PNG is damaged: ", image.message));
  }
};

}  // namespace

Image decode_png(std::span<const std::byte> file, std::string_view where) {
  PngReader reader;
  reader.check(png_image_begin_read_from_memory(&reader.image, file.data(), file.size()), where);
  Image image = make_image(reader.image.height, reader.image.width, file.size(), where);
  reader.image.format = PNG_FORMAT_RGB;
  const png_color white = {255, 255, 255};
  reader.check(png_image_finish_read(&reader.image, &white, image.pixels.data(),
                                     static_cast<png_int_32>(3 * image.width), nullptr),
               where);
  return image;
}

}  // namespace hone::data
