// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/tune/report/axis.h"
#include "hone/tune/report/chart.h"
#include "hone/tune/report/svg.h"

namespace hone::tune {

// Rooms of a drawing in user units; about one unit per CSS pixel at the width it is made for.
struct ChartLayout {
  double width, height;
  double left, right, top, bottom;  // margins around the plot
  double font;                      // size of labels
};
ChartLayout layout_of(ChartWidth width);

Axis::Range x_pixels(const ChartLayout& layout);
Axis::Range y_pixels(const ChartLayout& layout);  // low is at the bottom

// Grid, tick labels, axis names.
void draw_frame(SvgWriter& svg, const ChartLayout& layout, const Axis& x, const Axis& y,
                const std::string& x_label, const std::string& y_label);

// Smallest and largest finite value; {0, 1} when there is none.
Axis::Range range_of(const std::vector<double>& values);

}  // namespace hone::tune
