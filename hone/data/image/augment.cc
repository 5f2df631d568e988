// SPDX-License-Identifier: Apache-2.0
#include "hone/data/image/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "hone/core/config/config_table.h"
#include "hone/core/philox.h"
#include "hone/data/image/augment_color.h"

namespace hone::data {
namespace {

constexpr std::array<std::string_view, 2> kCrops = {"center", "random"};
constexpr Index kMaxAugmentSide = 4096;
// The stream of a seed that the keys of views come from; others order images.
constexpr std::uint32_t kViewStream = 4;

PhiloxStream random_of(const ViewKey& key) {
  const auto epoch = static_cast<std::uint64_t>(key.epoch);
  const PhiloxBlock block =
      philox(key.seed, {static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32),
                        kViewStream, static_cast<std::uint32_t>(key.view)});
  return PhiloxStream(std::uint64_t{block[0]} << 32 | block[1],
                      static_cast<std::uint64_t>(key.index));
}

// Uniform within `reach` of `center`.
double draw_near(PhiloxStream& random, double center, double reach) {
  return center + reach * (2 * random.uniform_double() - 1);
}
// Uniform in [low, high].
Index draw_index(PhiloxStream& random, Index low, Index high) {
  return low + static_cast<Index>(random.below(static_cast<std::uint32_t>(high - low + 1)));
}

Box centered_box(const Image& image, const AugmentOptions& options) {
  const Index height = options.side > 0 ? options.side : image.height;
  const Index width = options.side > 0 ? options.side : image.width;
  return {(image.height - height) / 2, (image.width - width) / 2, height, width};
}

Box random_box(const Image& image, const AugmentOptions& options, PhiloxStream& random) {
  Box box = centered_box(image, options);
  const auto draw = [&](Index room) {
    const Index least = std::min<Index>(0, room) - options.crop_padding;
    return draw_index(random, least, std::max<Index>(0, room) + options.crop_padding);
  };
  box.top = draw(image.height - box.height);
  box.left = draw(image.width - box.width);
  return box;
}

void apply_random_op(View& view, double magnitude, PhiloxStream& random) {
  Image& image = view.image;
  switch (random.below(6)) {
    case 0:
      return rotate(view, draw_near(random, 0, 3 * magnitude));
    case 1:
      return adjust_brightness(image, draw_near(random, 1, 0.05 * magnitude));
    case 2:
      return adjust_contrast(image, draw_near(random, 1, 0.05 * magnitude));
    case 3:
      return adjust_saturation(image, draw_near(random, 1, 0.05 * magnitude));
    case 4:
      return adjust_hue(image, draw_near(random, 0, 0.02 * magnitude));
    default:
      return adjust_sharpness(image, draw_near(random, 1, 0.1 * magnitude));
  }
}

void occlude(View& view, double area, PhiloxStream& random) {
  const Index height = view.image.height, width = view.image.width;
  const Index side = occlusion_side(height, width, area);
  if (side == 0) return;
  const Index top = draw_index(random, 0, height - side);
  const Index left = draw_index(random, 0, width - side);
  erase(view, {top, left, side, side}, mean_color(view.image));
}

void shuffle_cells(View& view, const AugmentOptions& options, PhiloxStream& random) {
  const Index cell = options.shuffle_grid;
  const Index rows = view.image.height / cell, columns = view.image.width / cell;
  if (rows < 2 || columns < 2) return;
  std::vector<Index> cells(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < cells.size(); ++i) cells[i] = static_cast<Index>(i);
  const Index pairs = std::min(options.shuffle_cells, rows * columns) / 2;
  std::vector<CellSwap> swaps(static_cast<std::size_t>(pairs));
  for (Index i = 0; i < 2 * pairs; ++i) {  // the first draws of a Fisher-Yates shuffle
    std::swap(cells[static_cast<std::size_t>(i)],
              cells[static_cast<std::size_t>(draw_index(random, i, rows * columns - 1))]);
    const Index own = cells[static_cast<std::size_t>(i)];
    CellSwap& swap = swaps[static_cast<std::size_t>(i / 2)];
    swap.top[i % 2] = own / columns * cell;
    swap.left[i % 2] = own % columns * cell;
  }
  swap_cells(view, cell, std::move(swaps));
}

}  // namespace

void check_augment(const AugmentOptions& options) {
  check_range("augment.side", options.side, 0, kMaxAugmentSide);
  check_choice("augment.crop", options.crop, kCrops);
  check_range("augment.crop_padding", options.crop_padding, 0, 1024);
  check_range("augment.flip", options.flip, 0, 1);
  check_range("augment.ops", options.ops, 0, 16);
  check_range("augment.magnitude", options.magnitude, 0, 10);
  check_range("augment.occlude", options.occlude, 0, 1);
  check_range("augment.occlude_area", options.occlude_area, 0, 1);
  check_range("augment.shuffle", options.shuffle, 0, 1);
  check_range("augment.shuffle_cells", options.shuffle_cells, 2, 1 << 16);
  check_range("augment.shuffle_grid", options.shuffle_grid, 1, kMaxAugmentSide);
}

bool changes_nothing(const AugmentOptions& options) {
  const bool cuts = options.side > 0 || (options.crop == "random" && options.crop_padding > 0);
  return !cuts && options.flip == 0 && options.ops == 0 && options.occlude == 0 &&
         options.shuffle == 0;
}

Index occlusion_side(Index height, Index width, double area) {
  const double pixels = std::floor(area * static_cast<double>(height * width));
  return std::min(static_cast<Index>(std::sqrt(pixels)), std::min(height, width) / 4);
}

View augment(Image image, const AugmentOptions& options, const ViewKey& key, PixelColor outside) {
  check_augment(options);
  PhiloxStream random = random_of(key);
  View view = whole_view(std::move(image));
  const bool is_random = options.crop == "random";
  crop(view,
       is_random ? random_box(view.image, options, random) : centered_box(view.image, options),
       outside);
  if (random.uniform_double() < options.flip) flip(view);
  for (Index i = 0; i < options.ops; ++i) apply_random_op(view, options.magnitude, random);
  if (random.uniform_double() < options.occlude) occlude(view, options.occlude_area, random);
  if (random.uniform_double() < options.shuffle) shuffle_cells(view, options, random);
  return view;
}

}  // namespace hone::data
