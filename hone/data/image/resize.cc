// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/check.h"
#include "hone/data/image/image.h"

namespace hone::data {
namespace {

// The weights, which add up to 1, of the inputs of one output sample, starting at input `begin`.
struct Taps {
  Index begin = 0;
  std::vector<float> weights;
};

// The taps of `outputs` samples over the inputs [first, first + length).
std::vector<Taps> make_taps(Index first, Index length, Index outputs) {
  const double step = static_cast<double>(length) / static_cast<double>(outputs);
  const double reach = std::max(1.0, step);
  std::vector<Taps> out;
  for (Index i = 0; i < outputs; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * step;
    const auto begin = std::max<Index>(0, static_cast<Index>(center - reach + 0.5));
    const auto end = std::min(length, static_cast<Index>(center + reach + 0.5));
    Taps taps{first + begin, {}};
    double sum = 0;
    for (Index j = begin; j < end; ++j) {
      const double weight =
          std::max(0.0, 1 - std::abs((static_cast<double>(j) + 0.5 - center) / reach));
      taps.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : taps.weights) weight = static_cast<float>(weight / sum);
    out.push_back(std::move(taps));
  }
  return out;
}

}  // namespace

void fit_to_square(const Image& image, Index side, std::span<std::uint8_t> planes) {
  HONE_CHECK(side > 0 && static_cast<Index>(planes.size()) == 3 * side * side, "fit_to_square",
             concat(3 * side * side, " bytes for 3 planes of ", side, " x ", side), planes.size());
  const Index square = std::min(image.height, image.width);
  const Index top = (image.height - square) / 2, left = (image.width - square) / 2;
  const std::vector<Taps> columns = make_taps(left, square, side);
  const std::vector<Taps> rows = make_taps(top, square, side);
  // The rows of the square scaled to the new width: [square, side, 3].
  std::vector<float> narrow(static_cast<std::size_t>(square * side * 3));
  float* to = narrow.data();
  for (Index y = 0; y < square; ++y) {
    const std::uint8_t* row = image.pixels.data() + (top + y) * image.width * 3;
    for (const Taps& taps : columns) {
      float sum[3] = {0, 0, 0};
      const std::uint8_t* from = row + taps.begin * 3;
      for (const float weight : taps.weights) {
        for (int c = 0; c < 3; ++c) sum[c] += weight * static_cast<float>(*from++);
      }
      to = std::copy(sum, sum + 3, to);
    }
  }
  for (Index y = 0; y < side; ++y) {
    const Taps& taps = rows[static_cast<std::size_t>(y)];
    for (Index x = 0; x < side * 3; ++x) {
      const float* from = narrow.data() + (taps.begin - top) * side * 3 + x;
      float sum = 0;
      for (std::size_t i = 0; i < taps.weights.size(); ++i) {
        sum += taps.weights[i] * from[static_cast<Index>(i) * side * 3];
      }
      const float rounded = std::clamp(std::round(sum), 0.0f, 255.0f);
      planes[static_cast<std::size_t>((x % 3 * side + y) * side + x / 3)] =
          static_cast<std::uint8_t>(rounded);
    }
  }
}

void decode_square(std::span<const std::byte> file, std::string_view where, const ImageShape& shape,
                   std::span<std::uint8_t> planes) {
  const Image image = decode_image(file, where, shape.height);
  if (shape.channels == 3) return fit_to_square(image, shape.height, planes);
  const std::size_t plane = planes.size();
  std::vector<std::uint8_t> rgb(3 * plane);
  fit_to_square(image, shape.height, rgb);
  for (std::size_t i = 0; i < plane; ++i) {
    planes[i] = static_cast<std::uint8_t>(luma(rgb[i], rgb[plane + i], rgb[2 * plane + i]));
  }
}

}  // namespace hone::data
