// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <string>

#include "hone/core/check.h"
#include "hone/data/image/codecs.h"

namespace hone::data {
namespace {

bool begins_with(std::span<const std::byte> file, std::string_view magic) {
  return file.size() >= magic.size() && std::memcmp(file.data(), magic.data(), magic.size()) == 0;
}

// Reads the numbers of a PGM or PPM header.
class NetpbmHeader {
 public:
  NetpbmHeader(std::span<const std::byte> file, std::string_view where)
      : text_(reinterpret_cast<const char*>(file.data()), file.size()), where_(where) {}

  Index next(std::string_view what) {
    skip_space();
    constexpr Index kMax = 1 << 24;
    Index value = -1;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = std::max<Index>(0, value) * 10 + (text_[at_] - '0');
      if (value > kMax) fail_corrupt(where_, concat("a ", what, " of at most ", kMax), "more");
    }
    if (value < 0) fail_corrupt(where_, concat("The header has no number for the ", what, "."));
    return value;
  }
  // The position after the single white space that ends the header.
  std::size_t end() const {
    if (at_ >= text_.size() || !is_space(text_[at_])) {
      fail_corrupt(where_, "There is no white space after the header.");
    }
    return at_ + 1;
  }

 private:
  static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
  void skip_space() {
    for (; at_ < text_.size() && (is_space(text_[at_]) || text_[at_] == '#'); ++at_) {
      if (text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size() - 1);
    }
  }

  std::string_view text_, where_;
  std::size_t at_ = 2;
};

}  // namespace

void check_size(Index height, Index width, FileLimit file, std::string_view where) {
  constexpr std::size_t kMost = std::size_t{1} << 40;  // so that the product does not overflow
  const Index limit =
      std::min(kMaxPixels, file.pixels_per_byte * static_cast<Index>(std::min(file.bytes, kMost)));
  if (height < 1 || width < 1 || height > limit || width > limit / height) {
    fail_corrupt(where, concat("1 to ", limit, " pixels in a file of ", file.bytes, " bytes"),
                 concat(width, " x ", height));
  }
}

Image make_image(Index height, Index width, FileLimit file, std::string_view where) {
  check_size(height, width, file, where);
  return {height, width, std::vector<std::uint8_t>(static_cast<std::size_t>(3 * height * width))};
}

Image decode_netpbm(std::span<const std::byte> file, std::string_view where) {
  NetpbmHeader header(file, where);
  const Index width = header.next("width"), height = header.next("height");
  const Index largest = header.next("largest value");
  if (largest < 1 || largest > 255)
    fail_corrupt(where, "a largest value of 1 to 255 (8 bits)", concat(largest));
  Image image = make_image(height, width, {.bytes = file.size()}, where);
  const bool is_gray = static_cast<char>(file[1]) == '5';
  const std::size_t needed = image.pixels.size() / (is_gray ? 3 : 1);
  const auto data = file.subspan(header.end());
  if (data.size() < needed) {
    fail_corrupt(where, concat(needed, " bytes of pixels"), concat(data.size()));
  }
  const auto scaled = [&](std::byte byte) {
    const Index value = std::min(std::to_integer<Index>(byte), largest);
    return static_cast<std::uint8_t>((value * 255 + largest / 2) / largest);
  };
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = scaled(data[is_gray ? i / 3 : i]);
  }
  return image;
}

Image decode_image(std::span<const std::byte> file, std::string_view where, Index least_side) {
  if (begins_with(file, "\xff\xd8\xff")) return decode_jpeg(file, where, least_side);
  if (begins_with(file, "\x89PNG")) return decode_png(file, where);
  if (begins_with(file, "P5") || begins_with(file, "P6")) return decode_netpbm(file, where);
  fail_corrupt(where, "a JPEG, PNG, PGM or PPM image",
               file.empty() ? "an empty file" : "another format");
}

bool has_image_name(const std::filesystem::path& path) {
  std::string name = path.extension().string();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array<std::string_view, 5> kEndings = {".jpg", ".jpeg", ".png", ".ppm", ".pgm"};
  return std::find(kEndings.begin(), kEndings.end(), name) != kEndings.end();
}

}  // namespace hone::data
