// SPDX-License-Identifier: Apache-2.0
#include <turbojpeg.h>

#include <memory>

#include "hone/core/check.h"
#include "hone/data/image/codecs.h"

namespace hone::data {
namespace {

struct Destroy {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using Handle = std::unique_ptr<void, Destroy>;

// The library's message may have several lines.
[[noreturn]] void fail_jpeg(const Handle& handle, std::string_view where) {
  std::string message = tjGetErrorStr2(handle.get());
  for (char& c : message) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  fail_corrupt(where, concat("The JPEG is damaged: ", message));
}

// The smallest of 1/8, 1/4, 1/2 and 1 that keeps the short side at least `least_side` long.
tjscalingfactor choose_scale(int width, int height, Index least_side) {
  tjscalingfactor scale = {1, 8};
  while (scale.denom > 1 && (least_side == 0 || TJSCALED(width, scale) < least_side ||
                             TJSCALED(height, scale) < least_side)) {
    scale.denom /= 2;
  }
  return scale;
}

}  // namespace

Image decode_jpeg(std::span<const std::byte> file, std::string_view where, Index least_side) {
  const Handle handle(tjInitDecompress());
  if (handle == nullptr)
    fail(ErrorCategory::Resource, where, "There is no memory for a JPEG decoder.");
  const auto* data = reinterpret_cast<const unsigned char*>(file.data());
  int width = 0, height = 0, sampling = 0, colors = 0;
  if (tjDecompressHeader3(handle.get(), data, file.size(), &width, &height, &sampling, &colors)) {
    fail_jpeg(handle, where);
  }
  if (colors == TJCS_CMYK || colors == TJCS_YCCK) {
    fail_unsupported(where, "a gray, YCbCr or RGB JPEG", "CMYK");
  }
  check_size(height, width, file.size(), where);
  const tjscalingfactor scale = choose_scale(width, height, least_side);
  Image image = make_image(TJSCALED(height, scale), TJSCALED(width, scale), file.size(), where);
  // To the library, a file that is cut short is only a warning. The limit on scans stops small
  // files that would take very long.
  if (tjDecompress2(handle.get(), data, file.size(), image.pixels.data(),
                    static_cast<int>(image.width), 0, static_cast<int>(image.height), TJPF_RGB,
                    TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS) != 0) {
    fail_jpeg(handle, where);
  }
  return image;
}

}  // namespace hone::data
