// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/report/chart.h"
#include "hone/report/chart_axis.h"
#include "hone/report/svg.h"

namespace hone::report {

// The layout of a drawing in user units, about one per CSS pixel at the intended width.
struct ChartLayout {
  double width, height;
  double left, right, top, bottom;  // margins around the plot
  double font;                      // size of the labels
};
ChartLayout layout_of(ChartWidth width);

ChartAxis::Range x_pixels(const ChartLayout& layout);
ChartAxis::Range y_pixels(const ChartLayout& layout);  // low is at the bottom

// Draws the grid, the tick labels and the axis names.
void draw_frame(SvgWriter& svg, const ChartLayout& layout, const ChartAxis& x, const ChartAxis& y,
                const std::string& x_label, const std::string& y_label);

// The smallest and largest finite value; {0, 1} if there is none.
ChartAxis::Range range_of(const std::vector<double>& values);

}  // namespace hone::report
