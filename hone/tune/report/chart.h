// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hone/core/json_io.h"
#include "hone/tune/report/figure.h"
#include "hone/tune/report/svg.h"

namespace hone::tune {

// Charts as data. Each is drawn twice, for a wide page and for a phone; every drawing has a title
// and a description for screen readers. Points that are not finite are omitted.

struct Series {
  std::string name;
  std::vector<Point> points;  // by ascending x
};
struct ReferenceLine {
  std::string name;
  double value = 0;
};

// At most four series. Horizontal reference lines are dashed and labeled.
struct LineChart {
  std::string title, note;
  std::string x_label, y_label;
  bool log_x = false, log_y = false;
  std::vector<Series> series;
  std::vector<ReferenceLine> references;
};

struct ScatterPoint {
  std::string name;
  Figure x, y;            // intervals are drawn as whiskers
  double size = 0;        // a third quantity; the bubble's area is proportional to it
  bool on_front = false;  // on the front line, and filled
};
struct ScatterChart {
  std::string title, note;
  std::string x_label, y_label, size_label;  // without size_label, all bubbles are equal
  bool log_x = false, log_y = false;
  std::vector<ScatterPoint> points;
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

enum class ChartWidth { Wide, Phone };
std::string draw(const LineChart& chart, ChartWidth width);
std::string draw(const ScatterChart& chart, ChartWidth width);
std::string draw(const BarChart& chart, ChartWidth width);

// All numbers that a chart shows.
Json to_json(const LineChart& chart);
Json to_json(const ScatterChart& chart);
Json to_json(const BarChart& chart);

// Reduces to at most `limit` points (limit >= 4), keeping the lowest and the highest of each
// stretch.
std::vector<Point> thin_out(const std::vector<Point>& points, std::size_t limit);

}  // namespace hone::tune
