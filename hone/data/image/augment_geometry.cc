// SPDX-License-Identifier: Apache-2.0
#include "hone/data/image/augment_geometry.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/portable_math.h"

namespace hone::data {
namespace {

const std::uint8_t* pixel_at(const Image& image, Index y, Index x) {
  return image.pixels.data() + 3 * (y * image.width + x);
}
std::uint8_t* pixel_at(Image& image, Index y, Index x) {
  return image.pixels.data() + 3 * (y * image.width + x);
}

bool is_inside(const Image& image, const Box& box) {
  return box.top >= 0 && box.left >= 0 && box.height >= 0 && box.width >= 0 &&
         box.top <= image.height - box.height && box.left <= image.width - box.width;
}

// The view after a step that takes the point p of the new view from the point step(p) of the old
// one.
void take_from(ViewGeometry& geometry, const Affine& step, const Affine& inverse) {
  HONE_REQUIRE(geometry.erased.width == 0 && geometry.swaps.empty(), "view",
               "Crops, flips and rotations come before what is erased and swapped.");
  geometry.to_source = compose(geometry.to_source, step);
  geometry.from_source = compose(inverse, geometry.from_source);
}

// Moves a point of a swapped cell to the same place of the other cell.
Point swap_point(const ViewGeometry& geometry, Point p) {
  for (const CellSwap& swap : geometry.swaps) {
    for (const int own : {0, 1}) {
      const Box cell{swap.top[own], swap.left[own], geometry.cell, geometry.cell};
      if (!cell.contains(p)) continue;
      return {p.x + static_cast<double>(swap.left[1 - own] - swap.left[own]),
              p.y + static_cast<double>(swap.top[1 - own] - swap.top[own])};
    }
  }
  return p;
}

}  // namespace

Affine compose(const Affine& a, const Affine& b) {
  const Point zero = a({b.x0, b.y0});
  return {.xx = a.xx * b.xx + a.xy * b.yx,
          .xy = a.xx * b.xy + a.xy * b.yy,
          .x0 = zero.x,
          .yx = a.yx * b.xx + a.yy * b.yx,
          .yy = a.yx * b.xy + a.yy * b.yy,
          .y0 = zero.y};
}

bool Box::contains(Point p) const {
  return p.y >= static_cast<double>(top) && p.y < static_cast<double>(top + height) &&
         p.x >= static_cast<double>(left) && p.x < static_cast<double>(left + width);
}

Point ViewGeometry::inverse_map(Point view) const { return to_source(swap_point(*this, view)); }

Point ViewGeometry::map(Point source) const { return swap_point(*this, from_source(source)); }

PixelColor mean_color(const Image& image) {
  const std::size_t count = image.pixels.size() / 3;
  PixelColor out{};
  for (std::size_t c = 0; c < 3 && count > 0; ++c) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += image.pixels[3 * i + c];
    out[c] = static_cast<std::uint8_t>((2 * sum + count) / (2 * count));
  }
  return out;
}

View whole_view(Image image) {
  HONE_CHECK(image.height > 0 && image.width > 0 &&
                 static_cast<Index>(image.pixels.size()) == 3 * image.height * image.width,
             "view", concat(3 * image.height * image.width, " values, and some"),
             image.pixels.size());
  View view{std::move(image), {}};
  view.geometry.height = view.image.height;
  view.geometry.width = view.image.width;
  return view;
}

void crop(View& view, const Box& box, PixelColor color) {
  HONE_CHECK(box.height > 0 && box.width > 0, "crop", "a height and a width above 0",
             concat(box.height, " x ", box.width));
  const auto left = static_cast<double>(box.left), top = static_cast<double>(box.top);
  take_from(view.geometry, {.x0 = left, .y0 = top}, {.x0 = -left, .y0 = -top});
  const Image& from = view.image;
  Image to{box.height, box.width,
           std::vector<std::uint8_t>(static_cast<std::size_t>(3 * box.height * box.width))};
  for (Index y = 0; y < to.height; ++y) {
    for (Index x = 0; x < to.width; ++x) {
      const Index row = y + box.top, column = x + box.left;
      const bool inside = row >= 0 && row < from.height && column >= 0 && column < from.width;
      std::copy_n(inside ? pixel_at(from, row, column) : color.data(), 3, pixel_at(to, y, x));
    }
  }
  view.image = std::move(to);
  view.geometry.height = box.height;
  view.geometry.width = box.width;
}

void flip(View& view) {
  Image& image = view.image;
  const Affine mirror{.xx = -1, .x0 = static_cast<double>(image.width)};
  take_from(view.geometry, mirror, mirror);
  for (Index y = 0; y < image.height; ++y) {
    for (Index x = 0; x < image.width / 2; ++x) {
      std::swap_ranges(pixel_at(image, y, x), pixel_at(image, y, x) + 3,
                       pixel_at(image, y, image.width - 1 - x));
    }
  }
}

void rotate(View& view, double degrees) {
  HONE_CHECK(std::isfinite(degrees), "rotate", "a finite angle", degrees);
  const Image from = view.image;
  const double turns = degrees / 360, cosine = cos_turns(turns), sine = sin_turns(turns);
  const double x = static_cast<double>(from.width) / 2, y = static_cast<double>(from.height) / 2;
  const Affine to_center{.x0 = -x, .y0 = -y}, back{.x0 = x, .y0 = y};
  const auto about_center = [&](double s) {
    return compose(back, compose({.xx = cosine, .xy = -s, .yx = s, .yy = cosine}, to_center));
  };
  const Affine step = about_center(sine);
  take_from(view.geometry, step, about_center(-sine));
  for (Index row = 0; row < from.height; ++row) {
    for (Index column = 0; column < from.width; ++column) {
      const Point p = step({static_cast<double>(column) + 0.5, static_cast<double>(row) + 0.5});
      std::uint8_t* const to = pixel_at(view.image, row, column);
      if (Box{0, 0, from.height, from.width}.contains(p)) {
        std::copy_n(pixel_at(from, static_cast<Index>(p.y), static_cast<Index>(p.x)), 3, to);
      } else {
        std::fill_n(to, 3, std::uint8_t{0});
      }
    }
  }
}

void erase(View& view, const Box& box, PixelColor color) {
  HONE_REQUIRE(is_inside(view.image, box), "erase", "The box must be inside the image.");
  HONE_REQUIRE(view.geometry.swaps.empty(), "erase", "Cells are swapped after this.");
  for (Index y = box.top; y < box.top + box.height; ++y) {
    for (Index x = box.left; x < box.left + box.width; ++x) {
      std::copy_n(color.data(), 3, pixel_at(view.image, y, x));
    }
  }
  view.geometry.erased = box;
}

void swap_cells(View& view, Index cell, std::vector<CellSwap> swaps) {
  for (const CellSwap& swap : swaps) {
    for (const int one : {0, 1}) {
      HONE_REQUIRE(is_inside(view.image, {swap.top[one], swap.left[one], cell, cell}), "swap_cells",
                   "The cells must be inside the image.");
    }
    for (Index y = 0; y < cell; ++y) {
      std::uint8_t* const first = pixel_at(view.image, swap.top[0] + y, swap.left[0]);
      std::swap_ranges(first, first + 3 * cell,
                       pixel_at(view.image, swap.top[1] + y, swap.left[1]));
    }
  }
  view.geometry.cell = cell;
  view.geometry.swaps = std::move(swaps);
}

}  // namespace hone::data
