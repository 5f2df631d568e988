// SPDX-License-Identifier: Apache-2.0
#include "hone/data/image/augment_color.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hone/core/check.h"

namespace hone::data {
namespace {

void check_factor(const char* op, double factor) {
  HONE_CHECK(std::isfinite(factor) && factor >= 0, op, "a finite factor of at least 0", factor);
}

// In single precision, as Pillow has it: truncation makes the difference visible.
std::uint8_t blend(int other, int value, double factor) {
  const float mixed =
      static_cast<float>(other) + static_cast<float>(factor) * static_cast<float>(value - other);
  return static_cast<std::uint8_t>(std::clamp(mixed, 0.0f, 255.0f));
}

int luma_at(const Image& image, std::size_t pixel) {
  const std::uint8_t* rgb = image.pixels.data() + 3 * pixel;
  return luma(rgb[0], rgb[1], rgb[2]);
}

using Color = std::array<double, 3>;

// torchvision's _rgb2hsv and _hsv2rgb for one pixel of values in [0, 1], with h moved in between.
Color turn_hue(const Color& rgb, double turns) {
  const auto [r, g, b] = rgb;
  const double most = std::max({r, g, b}), least = std::min({r, g, b}), range = most - least;
  if (range == 0) return rgb;
  const double rc = (most - r) / range, gc = (most - g) / range, bc = (most - b) / range;
  const double sixths = r == most ? bc - gc : g == most ? 2 + rc - bc : 4 + gc - rc;
  const double moved = sixths / 6 + turns;
  const double h = 6 * (moved - std::floor(moved));
  const double whole = std::floor(h), f = h - whole, s = range / most;
  const double p = most * (1 - s), q = most * (1 - s * f), t = most * (1 - s * (1 - f));
  switch (static_cast<int>(whole) % 6) {
    case 0:
      return {most, t, p};
    case 1:
      return {q, most, p};
    case 2:
      return {p, most, t};
    case 3:
      return {p, q, most};
    case 4:
      return {t, p, most};
    default:
      return {most, p, q};
  }
}

}  // namespace

void adjust_brightness(Image& image, double factor) {
  check_factor("adjust_brightness", factor);
  for (std::uint8_t& value : image.pixels) value = blend(0, value, factor);
}

void adjust_contrast(Image& image, double factor) {
  check_factor("adjust_contrast", factor);
  const std::size_t count = image.pixels.size() / 3;
  if (count == 0) return;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += luma_at(image, i);
  const int mean = static_cast<int>(static_cast<double>(sum) / static_cast<double>(count) + 0.5);
  for (std::uint8_t& value : image.pixels) value = blend(mean, value, factor);
}

void adjust_saturation(Image& image, double factor) {
  check_factor("adjust_saturation", factor);
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    const int gray = luma_at(image, i / 3);
    for (std::size_t c = 0; c < 3; ++c) {
      image.pixels[i + c] = blend(gray, image.pixels[i + c], factor);
    }
  }
}

void adjust_sharpness(Image& image, double factor) {
  check_factor("adjust_sharpness", factor);
  const std::vector<std::uint8_t> before = image.pixels;
  const Index row = 3 * image.width;
  for (Index y = 1; y + 1 < image.height; ++y) {
    for (Index at = y * row + 3; at < (y + 1) * row - 3; ++at) {
      const auto value = [&](Index offset) -> int {
        return before[static_cast<std::size_t>(at + offset)];
      };
      int sum = 4 * value(0);
      for (const Index line : {-row, Index{0}, row}) {
        sum += value(line - 3) + value(line) + value(line + 3);
      }
      const int smooth = (2 * sum + 13) / 26;  // sum / 13, rounded
      image.pixels[static_cast<std::size_t>(at)] = blend(smooth, value(0), factor);
    }
  }
}

void adjust_hue(Image& image, double turns) {
  HONE_CHECK(std::isfinite(turns), "adjust_hue", "a finite number of turns", turns);
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    std::uint8_t* const rgb = image.pixels.data() + i;
    const Color turned = turn_hue({rgb[0] / 255.0, rgb[1] / 255.0, rgb[2] / 255.0}, turns);
    for (std::size_t c = 0; c < 3; ++c) {
      // torchvision's conversion to 8 bits: 256 intervals of equal width.
      rgb[c] = static_cast<std::uint8_t>(std::clamp(turned[c], 0.0, 1.0) * 255.999);
    }
  }
}

}  // namespace hone::data
