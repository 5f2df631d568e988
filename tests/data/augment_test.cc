// SPDX-License-Identifier: Apache-2.0
#include "hone/data/image/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/philox.h"
#include "hone/core/portable_math.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/data/image/augment_color.h"

namespace hone::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Image random_image(Index height, Index width, std::uint64_t seed = 1) {
  Image image{height, width, {}};
  image.pixels.resize(static_cast<std::size_t>(3 * height * width));
  PhiloxStream random(seed);
  for (std::uint8_t& value : image.pixels) value = static_cast<std::uint8_t>(random.below(256));
  return image;
}

// The pixel in row r and column c has the color (r, c, 7).
Image coordinates(Index height, Index width) {
  Image image{height, width, {}};
  for (Index y = 0; y < height; ++y) {
    for (Index x = 0; x < width; ++x) {
      for (const Index value : {y, x, Index{7}}) {
        image.pixels.push_back(static_cast<std::uint8_t>(value));
      }
    }
  }
  return image;
}

Image one_row(std::vector<std::uint8_t> pixels) {
  const auto width = static_cast<Index>(pixels.size()) / 3;
  return {1, width, std::move(pixels)};
}

std::vector<std::uint8_t> after(Image image, const std::function<void(Image&)>& change) {
  change(image);
  return image.pixels;
}

// ---- color

TEST(AdjustBrightness, blends_with_black) {
  const Image image = one_row({100, 51, 255});
  EXPECT_THAT(after(image, [](Image& i) { adjust_brightness(i, 0.5); }), ElementsAre(50, 25, 127));
  EXPECT_THAT(after(image, [](Image& i) { adjust_brightness(i, 1.5); }), ElementsAre(150, 76, 255));
  EXPECT_THAT(after(image, [](Image& i) { adjust_brightness(i, 0); }), ElementsAre(0, 0, 0));
}

TEST(AdjustContrast, blends_with_the_mean_luma) {
  const Image image = one_row({100, 100, 100, 200, 200, 200});
  EXPECT_THAT(after(image, [](Image& i) { adjust_contrast(i, 0.5); }),
              ElementsAre(125, 125, 125, 175, 175, 175));
  EXPECT_THAT(after(image, [](Image& i) { adjust_contrast(i, 2); }),
              ElementsAre(50, 50, 50, 250, 250, 250));
  // The lumas of pure red and black are 76 and 0.
  EXPECT_THAT(after(one_row({255, 0, 0, 0, 0, 0}), [](Image& i) { adjust_contrast(i, 0); }),
              testing::Each(38));
}

TEST(AdjustSaturation, blends_with_the_luma_of_each_pixel) {
  const Image image = one_row({255, 0, 0, 9, 9, 9});
  EXPECT_THAT(after(image, [](Image& i) { adjust_saturation(i, 0); }),
              ElementsAre(76, 76, 76, 9, 9, 9));
  EXPECT_THAT(after(image, [](Image& i) { adjust_saturation(i, 0.5); }),
              ElementsAre(165, 38, 38, 9, 9, 9));
}

TEST(AdjustSharpness, blends_with_the_smoothed_image_inside_the_border) {
  Image image{3, 3, std::vector<std::uint8_t>(27, 13)};
  std::fill_n(image.pixels.begin() + 12, 3, std::uint8_t{130});
  // (5 * 130 + 8 * 13) / 13 = 58.
  for (const auto& [factor, center] :
       std::vector<std::pair<double, int>>{{0, 58}, {0.5, 94}, {1, 130}, {1.5, 166}}) {
    Image changed = image;
    adjust_sharpness(changed, factor);
    for (std::size_t at = 0; at < 27; ++at) {
      EXPECT_EQ(changed.pixels[at], at / 3 == 4 ? center : 13) << factor;
    }
  }
  const Image narrow = random_image(2, 5);
  EXPECT_EQ(after(narrow, [](Image& i) { adjust_sharpness(i, 0); }), narrow.pixels);
}

TEST(AdjustHue, goes_around_the_color_circle) {
  const Image image = one_row({255, 0, 0, 80, 80, 80});
  const auto turned = [&](double turns) {
    return after(image, [&](Image& i) { adjust_hue(i, turns); });
  };
  EXPECT_THAT(turned(1.0 / 3), ElementsAre(0, 255, 0, 80, 80, 80));
  EXPECT_THAT(turned(-1.0 / 3), ElementsAre(0, 0, 255, 80, 80, 80));
  EXPECT_THAT(turned(0.5), ElementsAre(0, 255, 255, 80, 80, 80));
  EXPECT_THAT(turned(1), ElementsAre(255, 0, 0, 80, 80, 80));
  // Value and saturation of HSV are those of the largest and the smallest channel.
  const Image before = random_image(20, 20);
  Image changed = before;
  adjust_hue(changed, 0.13);
  EXPECT_NE(changed.pixels, before.pixels);
  for (std::size_t at = 0; at < before.pixels.size(); at += 3) {
    const auto range = [at](const Image& of) {
      return std::ranges::minmax(std::span(of.pixels).subspan(at, 3));
    };
    EXPECT_EQ(range(changed).min, range(before).min);
    EXPECT_EQ(range(changed).max, range(before).max);
  }
}

TEST(AdjustColor, a_factor_of_one_and_no_turn_change_nothing_and_gray_stays_gray) {
  const Image image = random_image(64, 64);
  Image gray = image;
  for (std::size_t at = 0; at < gray.pixels.size(); ++at) {
    gray.pixels[at] = gray.pixels[at / 3 * 3];
  }
  using Change = void (*)(Image&, double);
  for (const auto& [change, neutral] :
       std::vector<std::pair<Change, double>>{{adjust_brightness, 1},
                                              {adjust_contrast, 1},
                                              {adjust_saturation, 1},
                                              {adjust_sharpness, 1},
                                              {adjust_hue, 0}}) {
    EXPECT_EQ(after(image, [&, c = change, n = neutral](Image& i) { c(i, n); }), image.pixels);
    for (const double amount : {0.3, 1.7}) {
      const auto changed = after(gray, [&, c = change](Image& i) { c(i, amount); });
      for (std::size_t at = 0; at < changed.size(); ++at) {
        ASSERT_EQ(changed[at], changed[at / 3 * 3]);
      }
    }
    Image copy = image;
    EXPECT_THROW(change(copy, std::nan("")), Error);
  }
}

// ---- geometry

TEST(Flip, mirrors_rows_and_is_its_own_inverse) {
  View view = whole_view(one_row({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  flip(view);
  EXPECT_THAT(view.image.pixels, ElementsAre(7, 8, 9, 4, 5, 6, 1, 2, 3));
  EXPECT_EQ(view.geometry.inverse_map({0.5, 0.5}), (Point{2.5, 0.5}));
  const Image image = random_image(9, 12);
  View twice = whole_view(image);
  flip(twice);
  EXPECT_NE(twice.image.pixels, image.pixels);
  flip(twice);
  EXPECT_EQ(twice.image.pixels, image.pixels);
  EXPECT_EQ(twice.geometry.inverse_map({3.5, 1.5}), (Point{3.5, 1.5}));
}

TEST(Rotate, is_exact_for_quarter_turns_counterclockwise) {
  const Image image = coordinates(2, 2);
  View view = whole_view(image);
  rotate(view, 90);
  // The upper right pixel, of row 0 and column 1, is now at the upper left.
  EXPECT_THAT(view.image.pixels, ElementsAre(0, 1, 7, 1, 1, 7, 0, 0, 7, 1, 0, 7));
  rotate(view, 90);
  rotate(view, 180);
  EXPECT_EQ(view.image.pixels, image.pixels);
  View still = whole_view(random_image(17, 31));
  rotate(still, 0);
  EXPECT_EQ(still.image.pixels, random_image(17, 31).pixels);
}

TEST(Rotate, fills_what_comes_from_outside_with_zero) {
  View view = whole_view({20, 20, std::vector<std::uint8_t>(1200, 9)});
  rotate(view, 45);
  EXPECT_EQ(view.image.pixels[0], 0);
  EXPECT_EQ(view.image.pixels[3 * (10 * 20 + 10)], 9);
  const auto zeros = std::count(view.image.pixels.begin(), view.image.pixels.end(), 0);
  // What remains of a unit square is the regular octagon, of area 2 sqrt(2) - 2.
  EXPECT_NEAR(static_cast<double>(zeros) / 1200, 3 - 2 * std::sqrt(2), 0.03);
}

// Compares the source of each pixel with what its color says. Exact steps also round-trip exactly.
void expect_geometry(const View& view, double tolerance) {
  Index inside = 0;
  for (Index y = 0; y < view.image.height; ++y) {
    for (Index x = 0; x < view.image.width; ++x) {
      const std::uint8_t* const color = view.image.pixels.data() + 3 * (y * view.image.width + x);
      const Point at{static_cast<double>(x) + 0.5, static_cast<double>(y) + 0.5};
      const Point from = view.geometry.inverse_map(at), back = view.geometry.map(from);
      if (tolerance == 0) {
        EXPECT_EQ(back, at);
      } else {
        EXPECT_NEAR(back.x, at.x, 1e-9);
        EXPECT_NEAR(back.y, at.y, 1e-9);
      }
      if (color[2] != 7) continue;  // from outside of the image
      ++inside;
      EXPECT_NEAR(from.y, color[0] + 0.5, tolerance);
      EXPECT_NEAR(from.x, color[1] + 0.5, tolerance);
    }
  }
  EXPECT_GT(inside, view.image.height * view.image.width / 3);
}

TEST(ViewGeometry, maps_pixels_to_where_they_come_from_and_back) {
  View view = whole_view(coordinates(100, 120));
  crop(view, {-3, 17, 96, 110});
  expect_geometry(view, 0);
  flip(view);
  expect_geometry(view, 0);
  View rotated = view;
  rotate(rotated, 13.7);
  expect_geometry(rotated, 0.5 + 1e-9);
  swap_cells(view, 16, {{{0, 32}, {16, 80}}, {{64, 16}, {0, 0}}});
  expect_geometry(view, 0);
  swap_cells(rotated, 16, {{{0, 32}, {16, 80}}});
  expect_geometry(rotated, 0.5 + 1e-9);
  EXPECT_THROW(flip(view), Error) << "after the swaps";
  EXPECT_THROW(swap_cells(view, 16, {{{0, 90}, {0, 0}}}), Error);
  EXPECT_THROW(crop(view, {0, 0, 0, 5}), Error);
}

// ---- views

std::vector<std::array<std::uint8_t, 3>> colors_of(const Image& image) {
  std::vector<std::array<std::uint8_t, 3>> out;
  for (std::size_t at = 0; at < image.pixels.size(); at += 3) {
    out.push_back({image.pixels[at], image.pixels[at + 1], image.pixels[at + 2]});
  }
  return out;
}

TEST(Augment, defaults_change_nothing) {
  const Image image = random_image(33, 20);
  const View view = augment(image, {}, {.seed = 1});
  EXPECT_EQ(view.image.pixels, image.pixels);
  EXPECT_EQ(view.geometry.inverse_map({4.5, 8.5}), (Point{4.5, 8.5}));
  EXPECT_TRUE(changes_nothing({}));
  EXPECT_FALSE(changes_nothing({.ops = 1}));
}

TEST(Augment, cuts_from_the_center_or_anywhere) {
  const Image image = coordinates(40, 50);
  const View center = augment(image, {.side = 32}, {.seed = 1});
  EXPECT_EQ(center.geometry.inverse_map({0, 0}), (Point{9, 4}));
  std::set<double> lefts, tops;
  for (Index i = 0; i < 400; ++i) {
    const View view = augment(image, {.side = 32, .crop = "random", .crop_padding = 2},
                              {.seed = 1, .index = i}, {3, 3, 3});
    EXPECT_EQ(view.image.height, 32);
    const Point corner = view.geometry.inverse_map({0, 0});
    tops.insert(corner.y);
    lefts.insert(corner.x);
    if (corner.y < 0) {
      EXPECT_EQ(view.image.pixels[0], 3);
    }
  }
  EXPECT_EQ(tops.size(), 8u + 1 + 4);
  EXPECT_EQ(lefts.size(), 18u + 1 + 4);
  EXPECT_EQ(*lefts.begin(), -2);
  EXPECT_EQ(*lefts.rbegin(), 20);
}

TEST(Augment, mirrors_at_the_rate_told) {
  const Image image = coordinates(4, 5);
  Index flipped = 0;
  for (Index i = 0; i < 2000; ++i) {
    flipped += augment(image, {.flip = 0.3}, {.seed = 2, .epoch = i}).image.pixels[1] == 4;
  }
  EXPECT_NEAR(static_cast<double>(flipped), 600, 4 * std::sqrt(2000 * 0.3 * 0.7));
}

TEST(Augment, magnitude_bounds_rotation_and_none_leaves_the_image) {
  const Image image = random_image(16, 16);
  double least = 1;
  for (Index i = 0; i < 600; ++i) {
    least =
        std::min(least, augment(image, {.ops = 1}, {.seed = 3, .index = i}).geometry.to_source.xx);
    EXPECT_EQ(augment(image, {.ops = 2, .magnitude = 0}, {.seed = 3, .index = i}).image.pixels,
              image.pixels);
  }
  const double radians = 3.14159265358979 / 180;
  EXPECT_GE(least, std::cos(15 * radians));
  EXPECT_LT(least, std::cos(13 * radians)) << "about 100 rotations";
}

TEST(OcclusionSide, is_the_root_of_the_area_and_at_most_a_quarter_of_the_side) {
  EXPECT_EQ(occlusion_side(224, 224, 0.1), 56);
  EXPECT_EQ(occlusion_side(224, 224, 0.01), 22);
  EXPECT_EQ(occlusion_side(64, 64, 0.1), 16);
  EXPECT_EQ(occlusion_side(64, 24, 1), 6);
  EXPECT_EQ(occlusion_side(3, 3, 1), 0);
  EXPECT_EQ(occlusion_side(64, 64, 0), 0);
}

TEST(Augment, occludes_one_square_with_the_mean_color) {
  const Image image = random_image(224, 224);
  const PixelColor mean = mean_color(image);
  for (Index i = 0; i < 5; ++i) {
    const View view = augment(image, {.occlude = 1}, {.seed = 4, .index = i});
    const Box& box = view.geometry.erased;
    EXPECT_EQ(box.height, 56);
    EXPECT_EQ(box.width, 56);
    const auto before = colors_of(image), colors = colors_of(view.image);
    for (Index at = 0; at < 224 * 224; ++at) {
      const bool erased =
          box.contains({static_cast<double>(at % 224) + 0.5, static_cast<double>(at / 224) + 0.5});
      ASSERT_EQ(colors[static_cast<std::size_t>(at)],
                erased ? mean : before[static_cast<std::size_t>(at)]);
    }
  }
}

TEST(MeanColor, rounds_each_channel) {
  EXPECT_EQ(mean_color(one_row({0, 10, 255, 1, 13, 255})), (PixelColor{1, 12, 255}));
}

TEST(Augment, shuffles_distinct_cells_in_pairs) {
  const Image image = coordinates(72, 90);
  for (Index i = 0; i < 20; ++i) {
    const View view = augment(image, {.shuffle = 1}, {.seed = 5, .index = i});
    ASSERT_EQ(view.geometry.swaps.size(), 4u);
    auto before = colors_of(image), colors = colors_of(view.image);
    Index moved = 0;
    for (std::size_t at = 0; at < colors.size(); ++at) moved += colors[at] != before[at];
    EXPECT_EQ(moved, 8 * 16 * 16);
    std::ranges::sort(before);
    std::ranges::sort(colors);
    EXPECT_EQ(colors, before) << "a permutation";
    expect_geometry(view, 0);
  }
  const auto swaps = [](Index height, Index width, Index cells) {
    return augment(random_image(height, width), {.shuffle = 1, .shuffle_cells = cells}, {.seed = 5})
        .geometry.swaps.size();
  };
  EXPECT_EQ(swaps(31, 200, 8), 0u) << "one row of cells";
  EXPECT_EQ(swaps(200, 31, 8), 0u);
  EXPECT_EQ(swaps(32, 32, 8), 2u) << "four cells";
  EXPECT_EQ(swaps(32, 48, 5), 2u) << "an odd number";
}

const AugmentOptions kAll = {.crop = "random",
                             .crop_padding = 3,
                             .flip = 0.5,
                             .ops = 4,
                             .magnitude = 10,
                             .occlude = 0.5,
                             .shuffle = 0.5};

TEST(Augment, takes_images_of_any_shape) {
  for (const auto& [height, width] :
       std::vector<std::pair<Index, Index>>{{1, 1}, {4096, 1}, {1, 4096}, {2, 3}}) {
    for (Index i = 0; i < 20; ++i) {
      const View own = augment(random_image(height, width), kAll, {.seed = 6, .index = i});
      EXPECT_EQ(own.image.height, height);
      EXPECT_EQ(own.geometry.width, width);
      AugmentOptions square = kAll;
      square.side = 40;
      const View cut = augment(random_image(height, width), square, {.seed = 6, .index = i});
      EXPECT_EQ(cut.image.pixels.size(), 3u * 40 * 40);
    }
  }
  EXPECT_THROW(augment({0, 0, {}}, kAll, {}), Error);
  EXPECT_THROW(augment({2, 2, {1, 2, 3}}, kAll, {}), Error);
}

TEST(Augment, depends_on_the_key_alone) {
  const Image image = random_image(48, 48);
  const auto pixels = [&](const ViewKey& key) { return augment(image, kAll, key).image.pixels; };
  const ViewKey key{.seed = 7, .epoch = 2, .index = 5, .view = 1};
  for (const ViewKey& other :
       {ViewKey{8, 2, 5, 1}, ViewKey{7, 3, 5, 1}, ViewKey{7, 2, 6, 1}, ViewKey{7, 2, 5, 0}}) {
    EXPECT_NE(pixels(other), pixels(key));
  }
  std::vector<std::vector<std::uint8_t>> forth(40), back(40);
  for (Index i = 0; i < 40; ++i) {
    forth[static_cast<std::size_t>(i)] = pixels({.seed = 7, .index = i});
  }
  ThreadPool pool(4);
  pool.parallel_for(40, 1, [&](Index begin, Index end, int) {
    for (Index i = begin; i < end; ++i) {
      back[static_cast<std::size_t>(39 - i)] = pixels({.seed = 7, .index = 39 - i});
    }
  });
  EXPECT_EQ(forth, back);
}

TEST(Augment, refuses_options_by_name) {
  const auto refusal = [](const AugmentOptions& options) {
    try {
      augment(random_image(2, 2), options, {});
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::InvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(kAll), "");
  EXPECT_THAT(refusal({.side = -1}), HasSubstr("augment.side"));
  EXPECT_THAT(refusal({.crop = "left"}), HasSubstr("[augment.crop] expected center or random"));
  EXPECT_THAT(refusal({.crop_padding = -1}), HasSubstr("augment.crop_padding"));
  EXPECT_THAT(refusal({.flip = 1.01}), HasSubstr("augment.flip"));
  EXPECT_THAT(refusal({.flip = std::nan("")}), HasSubstr("augment.flip"));
  EXPECT_THAT(refusal({.ops = -1}), HasSubstr("augment.ops"));
  EXPECT_THAT(refusal({.magnitude = 10.5}), HasSubstr("augment.magnitude"));
  EXPECT_THAT(refusal({.occlude = -0.1}), HasSubstr("augment.occlude"));
  EXPECT_THAT(refusal({.occlude_area = 2}), HasSubstr("augment.occlude_area"));
  EXPECT_THAT(refusal({.shuffle = 2}), HasSubstr("augment.shuffle"));
  EXPECT_THAT(refusal({.shuffle_cells = 1}), HasSubstr("augment.shuffle_cells"));
  EXPECT_THAT(refusal({.shuffle_grid = 0}), HasSubstr("augment.shuffle_grid"));
}

// ---- PNG and the functions below

TEST(EncodePng, gives_a_file_that_decodes_to_the_same_pixels) {
  for (const auto& [height, width] :
       std::vector<std::pair<Index, Index>>{{1, 1}, {7, 5}, {64, 64}, {1, 4096}}) {
    const Image image = random_image(height, width);
    const Image again = decode_image(encode_png(image), "x.png");
    EXPECT_EQ(again.height, height);
    EXPECT_EQ(again.width, width);
    EXPECT_EQ(again.pixels, image.pixels);
  }
  EXPECT_THROW(encode_png({0, 3, {}}), Error);
  EXPECT_THROW(encode_png({1, 1, {1, 2}}), Error);
}

TEST(PortableMath, agrees_with_the_c_library_to_the_last_digits) {
  PhiloxStream random(1);
  const double tau = 2 * std::acos(-1.0);
  for (int i = 0; i < 20000; ++i) {
    const double x = 40 * (random.uniform_double() - 0.5);
    EXPECT_NEAR(sin_turns(x / 10), std::sin(tau * (x / 10 - std::floor(x / 10))), 2e-15);
    EXPECT_NEAR(portable_exp(x) / std::exp(x), 1, 1e-15);
    EXPECT_NEAR(portable_log(std::exp(x)), std::log(std::exp(x)), 1e-15 * (1 + std::abs(x)));
  }
  EXPECT_EQ(sin_turns(0.25), 1);
  EXPECT_EQ(sin_turns(0.5), 0);
  EXPECT_EQ(cos_turns(0.5), -1);
  EXPECT_EQ(portable_exp(0), 1);
  EXPECT_EQ(portable_log(1), 0);
}

TEST(DrawNormal, has_the_moments_of_the_normal_distribution) {
  PhiloxStream random(2);
  double moments[4] = {0, 0, 0, 0};
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = draw_normal(random);
    for (int k = 0; k < 4; ++k) moments[k] += std::pow(x, k + 1) / kDraws;
  }
  // Four standard errors; the variances of x, x^2, x^3 and x^4 are 1, 2, 15 and 96.
  const double step = 4 / std::sqrt(kDraws);
  EXPECT_NEAR(moments[0], 0, step);
  EXPECT_NEAR(moments[1], 1, step * std::sqrt(2));
  EXPECT_NEAR(moments[2], 0, step * std::sqrt(15));
  EXPECT_NEAR(moments[3], 3, step * std::sqrt(96));
}

}  // namespace
}  // namespace hone::data
