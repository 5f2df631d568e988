// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "hone/data/image/image.h"

namespace hone::data {

// A place in an image: x columns and y rows from its upper left corner. The center of the pixel in
// row r and column c is (c + 0.5, r + 0.5).
struct Point {
  double x = 0, y = 0;

  friend bool operator==(const Point&, const Point&) = default;
};

// (xx x + xy y + x0, yx x + yy y + y0).
struct Affine {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;

  Point operator()(Point p) const { return {xx * p.x + xy * p.y + x0, yx * p.x + yy * p.y + y0}; }
};
// a(b(p)).
Affine compose(const Affine& a, const Affine& b);

struct Box {
  Index top = 0, left = 0, height = 0, width = 0;

  bool contains(Point p) const;
};

// Two cells of a grid that have changed places, by their upper left corners.
struct CellSwap {
  Index top[2] = {0, 0}, left[2] = {0, 0};
};

// Where the pixels of a view come from in the image that it was made of.
struct ViewGeometry {
  Index height = 0, width = 0;    // of the view
  Affine to_source, from_source;  // crop, flip and rotation; inverse to each other
  Box erased;                     // before the swaps; empty where nothing is erased
  Index cell = 0;                 // side of the swapped cells
  std::vector<CellSwap> swaps;    // of distinct cells

  // A point of the view in coordinates of the source, which may be outside of it. For flips, crops
  // and swaps of points at whole or half pixels the result is exact.
  Point inverse_map(Point view) const;
  // A point of the source in coordinates of the view, which may be outside of it.
  Point map(Point source) const;
};

// An image with its geometry. The functions below change both; crop(), flip() and rotate() are
// called before erase(), and that before swap_cells().
struct View {
  Image image;
  ViewGeometry geometry;
};

using PixelColor = std::array<std::uint8_t, 3>;
// The mean of each channel, rounded; black for an image without pixels.
PixelColor mean_color(const Image& image);

View whole_view(Image image);
// `box` may reach beyond the image; pixels there get the color.
void crop(View& view, const Box& box, PixelColor color = {0, 0, 0});
// Left to right.
void flip(View& view);
// Counterclockwise about the center; every pixel takes its value from the pixel that its center
// falls on, or 0 outside, as Pillow's Image.rotate() does with NEAREST.
void rotate(View& view, double degrees);
// Fills a box inside the image.
void erase(View& view, const Box& box, PixelColor color);
// Exchanges the cells of each pair. All cells are distinct and inside the image.
void swap_cells(View& view, Index cell, std::vector<CellSwap> swaps);

}  // namespace hone::data
