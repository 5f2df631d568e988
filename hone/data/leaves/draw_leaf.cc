// SPDX-License-Identifier: Apache-2.0
// Only operations that IEEE 754 rounds correctly reach the bytes, in a fixed order.
#include "hone/data/leaves/draw_leaf.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "hone/core/portable_math.h"
#include "hone/data/image/augment_geometry.h"

namespace hone::data {
namespace {

// Streams of a key; 0 has the deviates of the cues.
constexpr std::uint64_t kSceneStream = 1, kGrainStream = 2;
constexpr Index kSamples = 2;  // per pixel and axis

// Lengths on the leaf are in units of its own: from base (u = 0) to tip (u = 1).
constexpr double kLeastSpacing = 0.085, kMostSpacing = 0.15;  // of veins, of the extreme levels
constexpr double kLeastPair = 0.075, kMostPair = 0.15;        // distance of two notches
constexpr double kVeinShare = 0.34;  // of the leaf that is vein, before its soft edge
constexpr double kBlotchRadius = 0.052, kBlotchRatio = 2.6;  // of the axes, of every level
constexpr double kNotchDepth = 0.07, kNotchReach = 0.035;
constexpr double kVeinContrast = 0.42, kBlotchContrast = 0.5;
constexpr int kBlotchesOfSide = 5, kPairsOfSide = 3, kMarginSteps = 512;

using Rgb = std::array<double, 3>;

Rgb mix(const Rgb& a, const Rgb& b, double share) {
  Rgb out;
  for (std::size_t c = 0; c < 3; ++c) out[c] = a[c] + share * (b[c] - a[c]);
  return out;
}
Rgb scaled(const Rgb& a, double factor) { return {a[0] * factor, a[1] * factor, a[2] * factor}; }

double between(PhiloxStream& random, double low, double high) {
  return low + (high - low) * random.uniform_double();
}

// The value of a logarithmic scale whose extreme levels are `least` and `most`.
double on_scale(double cue, Index levels, double least, double most) {
  const double middle = 0.5 * (portable_log(least) + portable_log(most));
  const double step = portable_log(most / least) / static_cast<double>(levels - 1);
  return portable_exp(middle + step * cue);
}

// Half of the leaf, on one side of the midrib; `w` is the distance from it.
struct Side {
  std::array<double, kMarginSteps + 1> width{};  // of the leaf at u = i / kMarginSteps
  std::array<Point, kBlotchesOfSide> blotches{};
  double vein_phase = 0, wobble_u = 0, wobble_w = 0, wobble_phase = 0;
};

struct Leaf {
  Affine to_leaf;  // from the unit square of the picture
  std::array<Side, 2> sides;
  double spacing = 0, vein_slope = 0;
  double blotch_uu = 0, blotch_uw = 0, blotch_ww = 0;  // inverse of their covariance
  Rgb color{}, vein_color{};
  double light_x = 0, light_y = 0, side_light = 0;
};

struct Background {
  Rgb color{}, other{};
  double slope_x = 0, slope_y = 0;
  std::array<std::array<double, 4>, 2> waves{};  // turns per unit in x and y, phase, height
};

// A bent band across the picture.
struct Blade {
  bool is_there = false;
  double x = 0, y = 0, cosine = 1, sine = 0, bend = 0, half_width = 0;
  Rgb color{};
};

Affine draw_pose(PhiloxStream& random) {
  const double x = between(random, 0.46, 0.54), y = between(random, 0.46, 0.54);
  const double turns = 0.25 + between(random, -0.1, 0.1);  // the tip is above
  const double length = between(random, 0.8, 0.96), shear = between(random, -0.12, 0.12);
  const double aspect = between(random, 0.92, 1.08);
  const double cosine = cos_turns(turns), sine = sin_turns(turns);
  const Affine center{.x0 = -x, .y0 = -y};
  const Affine turn{.xx = cosine, .xy = -sine, .yx = sine, .yy = cosine};
  const Affine scale{.xx = 1 / length, .x0 = 0.5, .yx = shear / length, .yy = aspect / length};
  return compose(scale, compose(turn, center));
}

// The outline without notches: a sine arch and two harmonics.
double arch(double u, double width, double second, double third) {
  return width * (sin_turns(0.5 * u) + second * sin_turns(u) + third * sin_turns(1.5 * u));
}

void draw_margin(Side& side, const std::array<double, 3>& shape, double pair,
                 PhiloxStream& random) {
  std::array<double, 2 * kPairsOfSide> notches{};
  for (int i = 0; i < kPairsOfSide; ++i) {
    const double center = 0.25 + 0.25 * i + between(random, -0.025, 0.025);
    const auto at = static_cast<std::size_t>(2 * i);
    notches[at] = center - 0.5 * pair;
    notches[at + 1] = center + 0.5 * pair;
  }
  for (int i = 0; i <= kMarginSteps; ++i) {
    const double u = static_cast<double>(i) / kMarginSteps;
    double depth = 0;
    for (const double notch : notches) {
      depth = std::max(depth, kNotchDepth * (1 - std::abs(u - notch) / kNotchReach));
    }
    const double width = arch(u, shape[0], shape[1], shape[2]);
    side.width[static_cast<std::size_t>(i)] = std::max(0.0, width - depth);
  }
}

void draw_side(Side& side, const std::array<double, 3>& shape, PhiloxStream& random) {
  for (int i = 0; i < kBlotchesOfSide; ++i) {
    const double u = 0.2 + 0.145 * i + between(random, -0.035, 0.035);
    const double share = between(random, 0.36, 0.62);
    side.blotches[static_cast<std::size_t>(i)] = {u, share * arch(u, shape[0], shape[1], shape[2])};
  }
  side.vein_phase = random.uniform_double();
  side.wobble_u = between(random, 0.7, 1.6);
  side.wobble_w = between(random, 0.7, 1.6);
  side.wobble_phase = random.uniform_double();
}

Leaf draw_leaf_parts(const LeafCues& cues, Index levels, PhiloxStream& random) {
  Leaf leaf;
  leaf.to_leaf = draw_pose(random);
  const std::array<double, 3> shape = {between(random, 0.26, 0.33), between(random, -0.14, 0.14),
                                       between(random, -0.02, 0.08)};
  const double pair = on_scale(cues.notch, levels, kLeastPair, kMostPair);
  for (Side& side : leaf.sides) {
    draw_margin(side, shape, pair, random);
    draw_side(side, shape, random);
  }
  leaf.spacing = on_scale(cues.vein, levels, kLeastSpacing, kMostSpacing);
  leaf.vein_slope = between(random, 0.5, 0.8);
  // The covariance is exp of a symmetric matrix without trace, so its determinant is fixed.
  const double radius = std::sqrt(cues.blotch_x * cues.blotch_x + cues.blotch_y * cues.blotch_y);
  const double level_radius = 0.5 / sin_turns(0.5 / static_cast<double>(levels));
  const double stretch = portable_exp(portable_log(kBlotchRatio) * radius / level_radius);
  const double shrink = 1 / stretch;
  const double even = 0.5 * (stretch + shrink), odd = 0.5 * (stretch - shrink);
  const double x = radius > 0 ? cues.blotch_x / radius : 0;
  const double y = radius > 0 ? cues.blotch_y / radius : 0;
  constexpr double kPrecision = 1 / (kBlotchRadius * kBlotchRadius);
  leaf.blotch_uu = kPrecision * (even - odd * x);
  leaf.blotch_uw = kPrecision * -odd * y;
  leaf.blotch_ww = kPrecision * (even + odd * x);
  leaf.color = {between(random, 0.22, 0.5), between(random, 0.42, 0.66),
                between(random, 0.12, 0.3)};
  leaf.vein_color = {between(random, 0.72, 0.9), between(random, 0.8, 0.95),
                     between(random, 0.5, 0.7)};
  leaf.light_x = between(random, -0.3, 0.3);
  leaf.light_y = between(random, -0.3, 0.3);
  leaf.side_light = between(random, -0.08, 0.08);
  return leaf;
}

Background draw_background(PhiloxStream& random) {
  Background out;
  const bool is_light = random.uniform_double() < 0.5;
  const double level = is_light ? between(random, 0.65, 0.85) : between(random, 0.1, 0.28);
  for (std::size_t c = 0; c < 3; ++c) {
    out.color[c] = level + between(random, -0.06, 0.06);
    out.other[c] = level + between(random, -0.09, 0.09);
  }
  out.slope_x = between(random, -0.15, 0.15);
  out.slope_y = between(random, -0.15, 0.15);
  for (auto& wave : out.waves) {
    wave = {between(random, -6, 6), between(random, -6, 6), random.uniform_double(),
            between(random, 0.1, 0.4)};
  }
  return out;
}

Blade draw_blade(PhiloxStream& random) {
  Blade out;
  out.is_there = random.uniform_double() < 0.7;
  out.x = between(random, 0.25, 0.75);
  out.y = between(random, 0.25, 0.75);
  const double turns = random.uniform_double();
  out.cosine = cos_turns(turns);
  out.sine = sin_turns(turns);
  out.bend = between(random, -0.3, 0.3);
  out.half_width = between(random, 0.02, 0.045);
  out.color = {between(random, 0.3, 0.7), between(random, 0.5, 0.8), between(random, 0.15, 0.35)};
  return out;
}

Rgb background_at(const Background& background, Point p) {
  double share = 0.5;
  for (const auto& [x, y, phase, height] : background.waves) {
    share += height * sin_turns(x * p.x + y * p.y + phase);
  }
  const double light = 1 + background.slope_x * (p.x - 0.5) + background.slope_y * (p.y - 0.5);
  return scaled(mix(background.color, background.other, share), light);
}

double blotch_at(const Leaf& leaf, const Side& side, double u, double w) {
  double dark = 0;
  for (const Point& blotch : side.blotches) {
    const double du = u - blotch.x, dw = w - blotch.y;
    const double square =
        leaf.blotch_uu * du * du + 2 * leaf.blotch_uw * du * dw + leaf.blotch_ww * dw * dw;
    dark = std::max(dark, std::min(1.0, 2 * (1 - square)));
  }
  return dark;
}

double vein_at(const Leaf& leaf, const Side& side, double u, double w) {
  const double wobble = 0.25 * sin_turns(side.wobble_u * u + side.wobble_w * w + side.wobble_phase);
  const double t = (u - leaf.vein_slope * w) / leaf.spacing + side.vein_phase + wobble;
  const double off = std::abs(t - std::floor(t + 0.5));  // from the nearest vein, in spacings
  constexpr double kSoft = 0.12;
  return std::clamp((0.5 * kVeinShare - off) / kSoft + 0.5, 0.0, 1.0);
}

// Sets `color` and returns true where the leaf is.
bool paint_leaf(const Leaf& leaf, Point p, Rgb& color) {
  const Point on = leaf.to_leaf(p);
  const double u = on.x, w = std::abs(on.y);
  constexpr double kRib = 0.012, kStem = -0.14;
  if (u < 0 && u > kStem && w < kRib) {
    color = scaled(leaf.vein_color, 0.8);
    return true;
  }
  if (u < 0 || u >= 1) return false;
  const Side& side = leaf.sides[on.y < 0 ? 0 : 1];
  const double step = u * kMarginSteps, whole = std::floor(step);
  const auto at = static_cast<std::size_t>(whole);
  const double half = side.width[at] + (step - whole) * (side.width[at + 1] - side.width[at]);
  if (w >= half) return false;
  const double vein = w < kRib ? 1 : kVeinContrast * vein_at(leaf, side, u, w);
  color = mix(leaf.color, leaf.vein_color, vein);
  const double side_light = on.y < 0 ? leaf.side_light : -leaf.side_light;
  const double light = 1 + leaf.light_x * (p.x - 0.5) + leaf.light_y * (p.y - 0.5) + side_light;
  color = scaled(color, light * (1 - kBlotchContrast * blotch_at(leaf, side, u, w)));
  return true;
}

bool paint_blade(const Blade& blade, Point p, Rgb& color) {
  if (!blade.is_there) return false;
  const double dx = p.x - blade.x, dy = p.y - blade.y;
  const double along = blade.cosine * dx + blade.sine * dy;
  const double across = blade.cosine * dy - blade.sine * dx + blade.bend * along * along;
  if (std::abs(across) >= blade.half_width) return false;
  color = scaled(blade.color, 1 + 0.25 * across / blade.half_width);
  return true;
}

// Adds grain, moves mean and deviation of the channel to drawn values and rounds.
void finish_channel(std::vector<double>& values, double mean, double deviation, std::size_t channel,
                    PhiloxStream& grain, std::vector<std::uint8_t>& pixels) {
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (double& value : values) {
    value += 0.05 * (static_cast<double>(grain()) * 0x1p-32 - 0.5);
    sum += value;
  }
  const double own = sum / count;
  for (const double value : values) squares += (value - own) * (value - own);
  const double scale = deviation / std::sqrt(squares / count);  // the grain keeps it above 0
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double level = 255 * (mean + scale * (values[i] - own));
    pixels[3 * i + channel] =
        static_cast<std::uint8_t>(std::floor(std::clamp(level, 0.0, 255.0) + 0.5));
  }
}

}  // namespace

Image draw_leaf(const LeafCues& cues, Index levels, Index side, std::uint64_t key) {
  PhiloxStream random(key, kSceneStream), grain(key, kGrainStream);
  const Leaf leaf = draw_leaf_parts(cues, levels, random);
  const Background background = draw_background(random);
  const Blade blade = draw_blade(random);
  const auto count = static_cast<std::size_t>(side * side);
  std::array<std::vector<double>, 3> channels;
  for (auto& channel : channels) channel.resize(count);
  const double step = 1 / static_cast<double>(side * kSamples);
  const double pixel = 1 / static_cast<double>(side);
  for (std::size_t i = 0; i < count; ++i) {
    const Index row = static_cast<Index>(i) / side, column = static_cast<Index>(i) % side;
    const Rgb behind = background_at(background, {(static_cast<double>(column) + 0.5) * pixel,
                                                  (static_cast<double>(row) + 0.5) * pixel});
    for (Index sample = 0; sample < kSamples * kSamples; ++sample) {
      const Index x = column * kSamples + sample % kSamples;
      const Index y = row * kSamples + sample / kSamples;
      const Point p{(static_cast<double>(x) + 0.5) * step, (static_cast<double>(y) + 0.5) * step};
      Rgb color = behind;
      if (!paint_blade(blade, p, color)) paint_leaf(leaf, p, color);
      for (std::size_t c = 0; c < 3; ++c) channels[c][i] += color[c] / (kSamples * kSamples);
    }
  }
  const double mean = between(random, 0.4, 0.56), deviation = between(random, 0.17, 0.23);
  constexpr Rgb kTint = {0, 0.03, -0.05};
  Image image{side, side, std::vector<std::uint8_t>(3 * count)};
  for (std::size_t c = 0; c < 3; ++c) {
    const double own = mean + kTint[c] + between(random, -0.04, 0.04);
    finish_channel(channels[c], own, deviation * between(random, 0.9, 1.1), c, grain, image.pixels);
  }
  return image;
}

}  // namespace hone::data
