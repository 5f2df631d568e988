// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "hone/core/check.h"
#include "hone/report/chart.h"
#include "hone/report/chart_frame.h"

namespace hone::report {
namespace {

constexpr std::size_t kMaxSeries = 6;
constexpr std::size_t kMaxPoints = 600;  // more than one per pixel is not visible

std::string series_class(std::size_t index) { return concat("line s", index + 1); }

std::vector<SvgPoint> finite_points(const std::vector<SvgPoint>& points) {
  std::vector<SvgPoint> kept;
  for (const SvgPoint& point : points) {
    if (std::isfinite(point.x) && std::isfinite(point.y)) kept.push_back(point);
  }
  return kept;
}

struct Extent {
  std::vector<double> x, y;
};

Extent collect(const LineChart& chart) {
  Extent extent;
  for (const Series& series : chart.series) {
    for (const SvgPoint& point : finite_points(series.points)) {
      extent.x.push_back(point.x);
      extent.y.push_back(point.y);
    }
  }
  for (const ReferenceLine& line : chart.references) extent.y.push_back(line.value);
  return extent;
}

// Draws the names with their strokes, right-aligned above the plot: beside the name of the y axis,
// or below it where the two do not fit side by side.
void draw_key(SvgWriter& svg, const LineChart& chart, const ChartLayout& layout) {
  double right = layout.width - layout.right, width = 0;
  for (const Series& series : chart.series) width += text_width(series.name) * layout.font + 42;
  const bool fits = right - width > 4 + text_width(chart.y_label) * layout.font;
  const double base = fits ? 15 : 15 + layout.font + 2;
  for (std::size_t i = chart.series.size(); i-- > 0;) {
    const std::string& name = chart.series[i].name;
    svg.add_text({right, base}, name, Anchor::End, "key");
    right -= text_width(name) * layout.font + 8;
    svg.add_line({right - 18, base - 4}, {right, base - 4}, series_class(i));
    right -= 34;
  }
}

void draw_references(SvgWriter& svg, const LineChart& chart, const ChartLayout& layout,
                     const ChartAxis& y) {
  const ChartAxis::Range across = x_pixels(layout);
  for (const ReferenceLine& line : chart.references) {
    if (!std::isfinite(line.value)) continue;
    const double at = y.place(line.value);
    svg.add_line({across.low, at}, {across.high, at}, "reference");
    svg.add_text({across.low + 8, at - 7}, concat(line.name, " ", format_number(line.value)),
                 Anchor::Start, "reference-name");
  }
}

}  // namespace

std::vector<SvgPoint> thin_out(const std::vector<SvgPoint>& points, std::size_t limit) {
  HONE_CHECK(limit >= 4, "thin_out", "a limit of at least 4", limit);
  if (points.size() <= limit) return points;
  const std::size_t stretches = limit / 2;
  std::vector<SvgPoint> kept;
  for (std::size_t i = 0; i < stretches; ++i) {
    const std::size_t begin = i * points.size() / stretches;
    const std::size_t end = (i + 1) * points.size() / stretches;
    auto [low, high] =
        std::minmax_element(points.begin() + static_cast<std::ptrdiff_t>(begin),
                            points.begin() + static_cast<std::ptrdiff_t>(end),
                            [](const SvgPoint& a, const SvgPoint& b) { return a.y < b.y; });
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  return kept;
}

std::string draw(const LineChart& chart, ChartWidth width) {
  HONE_CHECK(chart.series.size() <= kMaxSeries, "line chart",
             concat("at most ", kMaxSeries, " series"), chart.series.size());
  const ChartLayout layout = layout_of(width);
  const Extent extent = collect(chart);
  const int x_ticks = width == ChartWidth::Wide ? 8 : 5;
  const ChartAxis x(range_of(extent.x), x_pixels(layout), chart.log_x, x_ticks,
                    ChartAxis::Fit::Data);
  const ChartAxis y(range_of(extent.y), y_pixels(layout), chart.log_y, 5);
  SvgWriter svg(layout.width, layout.height, chart.title, chart.note);
  draw_frame(svg, layout, x, y, chart.x_label, chart.y_label);
  draw_references(svg, chart, layout, y);
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    std::vector<SvgPoint> places;
    for (const SvgPoint& point : thin_out(finite_points(chart.series[i].points), kMaxPoints)) {
      places.push_back({x.place(point.x), y.place(point.y)});
    }
    svg.add_polyline(places, series_class(i));
    if (places.size() <= 40) {
      for (const SvgPoint& place : places) svg.add_circle(place, 3, concat("dot s", i + 1));
    }
  }
  draw_key(svg, chart, layout);
  return svg.finish();
}

Json to_json(const LineChart& chart) {
  Json json;
  json["kind"] = "line";
  json["title"] = chart.title;
  json["x"] = chart.x_label;
  json["y"] = chart.y_label;
  json["series"] = Json::array();
  for (const Series& series : chart.series) {
    Json points = Json::array();
    for (const SvgPoint& point : finite_points(series.points)) points.push_back({point.x, point.y});
    json["series"].push_back({{"name", series.name}, {"points", std::move(points)}});
  }
  json["references"] = Json::array();
  for (const ReferenceLine& line : chart.references) {
    json["references"].push_back({{"name", line.name}, {"value", line.value}});
  }
  return json;
}

}  // namespace hone::report
