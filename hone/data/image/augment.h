// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "hone/data/image/augment_geometry.h"

namespace hone::data {

// How views are made of an image, in this order. The defaults change nothing.
struct AugmentOptions {
  Index side = 0;               // of the square that is cut out; 0: height and width of the image
  std::string crop = "center";  // or random
  Index crop_padding = 0;       // a random cut may reach this many pixels beyond each edge
  double flip = 0;              // probability of a mirror image, left to right
  // Number of operations, drawn with replacement from: rotation by up to 3 magnitude degrees;
  // brightness, contrast and saturation by factors of up to 1 +- 0.05 magnitude; hue by up to 0.02
  // magnitude turns; sharpness by a factor of up to 1 +- 0.1 magnitude. All are uniform.
  Index ops = 0;
  double magnitude = 5;
  // Probability of a square of this share of the area, and of at most a quarter of the shorter
  // side, that is filled with the mean color of the view.
  double occlude = 0, occlude_area = 0.1;
  // Probability that cells of a grid change places in pairs: as many distinct cells as told, or all
  // where there are fewer. `shuffle_grid` is the side of a cell in pixels; a view of less than 2
  // cells in an axis stays as it is.
  double shuffle = 0;
  Index shuffle_cells = 8, shuffle_grid = 16;
};
// Throws Error{InvalidArgument} that names the key of the option: "augment.flip".
void check_augment(const AugmentOptions& options);
// Whether every view is the image itself.
bool changes_nothing(const AugmentOptions& options);

// What a view depends on besides image and options, so that the number and the order of workers
// does not matter.
struct ViewKey {
  std::uint64_t seed = 0;
  Index epoch = 0, index = 0, view = 0;
};
// `outside` is the color of what a cut takes from beyond the image.
View augment(Image image, const AugmentOptions& options, const ViewKey& key,
             PixelColor outside = {0, 0, 0});

// The side of the square of AugmentOptions::occlude in a view of this size; 0 if none fits.
Index occlusion_side(Index height, Index width, double area);

}  // namespace hone::data
