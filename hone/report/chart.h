// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/report/figure.h"
#include "hone/report/svg.h"

namespace hone::report {

// Charts as data. Each is drawn twice, for a wide page and for a phone; every drawing has a title
// and a description for screen readers. Points that are not finite are omitted.

struct Series {
  std::string name;
  std::vector<SvgPoint> points;  // by ascending x
};
struct ReferenceLine {
  std::string name;
  double value = 0;
};

// At most six series. Horizontal reference lines are dashed and labeled.
struct LineChart {
  std::string title, note;
  std::string x_label, y_label;
  bool log_x = false, log_y = false;
  std::vector<Series> series;
  std::vector<ReferenceLine> references;
};

struct ScatterPoint {
  std::string name;
  Figure x, y;                        // intervals are drawn as whiskers
  double size = 0;                    // a third quantity; the bubble's area is proportional to it
  bool on_front = false;              // on the front line, and filled
  std::optional<double> also_x = {};  // another x of the same kind: a stroke joined to the point
};
struct ScatterChart {
  std::string title, note;
  std::string x_label, y_label, size_label;  // without size_label, all bubbles are equal
  bool log_x = false, log_y = false;
  std::vector<ScatterPoint> points;
  std::optional<ReferenceLine> x_reference = {}, y_reference = {};  // vertical and horizontal
};

struct Bar {
  std::string name;
  Figure figure;  // p10 and p90 are drawn as whiskers
  bool highlighted = false;
};
// Horizontal bars that start at zero, in groups below each other.
struct BarGroup {
  std::string name;  // may be empty
  std::vector<Bar> bars;
};
struct BarChart {
  std::string title, note;
  std::string value_label;
  std::vector<BarGroup> groups;
  std::optional<ReferenceLine> reference;
};

// Counts of images, rows by columns of the same names, each shaded by its share of its row. Names
// are left out where there is no room for all.
struct Heatmap {
  std::string title, note;
  std::string row_label, column_label;
  std::vector<std::string> names;
  std::vector<Index> counts;  // row by row
};

// Points colored by group. The page lists the colors of at most kGroupColors groups; beyond, groups
// share colors, and a point's name is in its tooltip only.
inline constexpr std::size_t kGroupColors = 20;  // as in the page's style
struct CloudPoint {
  double x = 0, y = 0;
  std::size_t group = 0;
};
struct PointCloud {
  std::string title, note;
  std::string x_label, y_label;
  std::vector<std::string> groups;
  std::vector<CloudPoint> points;
};
// The CSS class that has the color of a group.
std::string group_color(std::size_t group);

enum class ChartWidth { Wide, Phone };
std::string draw(const LineChart& chart, ChartWidth width);
std::string draw(const ScatterChart& chart, ChartWidth width);
std::string draw(const BarChart& chart, ChartWidth width);
// Throws Error{InvalidArgument} for another number of counts.
std::string draw(const Heatmap& map, ChartWidth width);
// Throws Error{InvalidArgument} for a point of a group that does not exist.
std::string draw(const PointCloud& cloud, ChartWidth width);

// Drawings of one width as a file: an SVG document with the page's style, in rows of `columns`.
// Throws Error{InvalidArgument} for text that draw() did not return.
std::string svg_file(const std::string& title, const std::vector<std::string>& drawings,
                     int columns, ChartWidth width);

// All numbers that a chart shows.
Json to_json(const LineChart& chart);
Json to_json(const ScatterChart& chart);
Json to_json(const BarChart& chart);
Json to_json(const Heatmap& map);  // cells that are not 0 as [row, column, count]
Json to_json(const PointCloud& cloud);

// Reduces to at most `limit` points (limit >= 4), keeping the lowest and the highest of each
// stretch.
std::vector<SvgPoint> thin_out(const std::vector<SvgPoint>& points, std::size_t limit);

}  // namespace hone::report
