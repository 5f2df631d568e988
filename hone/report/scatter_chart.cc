// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "hone/core/check.h"
#include "hone/report/chart.h"
#include "hone/report/chart_frame.h"

namespace hone::report {
namespace {

// With more points, labels that would overlap are left out.
constexpr std::size_t kMostLabels = 12;

struct Box {
  double left, top, right, bottom;
  bool meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

bool is_drawable(const ScatterPoint& point) {
  return std::isfinite(point.x.value) && std::isfinite(point.y.value);
}

std::vector<ScatterPoint> drawable_points(const ScatterChart& chart) {
  std::vector<ScatterPoint> points;
  std::copy_if(chart.points.begin(), chart.points.end(), std::back_inserter(points), is_drawable);
  return points;
}

std::pair<double, double> whiskers_of(const Figure& figure) {
  if (figure.ci) return *figure.ci;
  if (figure.p10 && figure.p90) return {*figure.p10, *figure.p90};
  return {figure.value, figure.value};
}

std::vector<double> spread_of(const std::vector<ScatterPoint>& points, Figure ScatterPoint::*side) {
  std::vector<double> values;
  for (const ScatterPoint& point : points) {
    const auto [low, high] = whiskers_of(point.*side);
    values.insert(values.end(), {low, high, (point.*side).value});
  }
  return values;
}

std::vector<double> spread_of_x(const ScatterChart& chart,
                                const std::vector<ScatterPoint>& points) {
  std::vector<double> values = spread_of(points, &ScatterPoint::x);
  for (const ScatterPoint& point : points) {
    if (point.also_x) values.push_back(*point.also_x);
  }
  if (chart.x_reference) values.push_back(chart.x_reference->value);
  return values;
}

std::vector<double> spread_of_y(const ScatterChart& chart,
                                const std::vector<ScatterPoint>& points) {
  std::vector<double> values = spread_of(points, &ScatterPoint::y);
  if (chart.y_reference) values.push_back(chart.y_reference->value);
  return values;
}

ChartAxis::Range widen(ChartAxis::Range range, bool logarithmic) {
  if (logarithmic && range.low > 0) {
    const double factor = std::pow(range.high / range.low, 0.08);
    return {range.low / factor, range.high * factor};
  }
  const double margin = (range.high - range.low) * 0.08, low = range.low - margin;
  return {range.low < 0 ? low : std::max(0.0, low), range.high + margin};
}

class ScatterDrawing {
 public:
  ScatterDrawing(const ScatterChart& chart, ChartWidth width)
      : chart_(chart),
        points_(drawable_points(chart)),
        layout_(layout_of(width)),
        x_(widen(range_of(spread_of_x(chart, points_)), chart.log_x), x_pixels(layout_),
           chart.log_x, width == ChartWidth::Wide ? 6 : 4),
        y_(widen(range_of(spread_of_y(chart, points_)), chart.log_y), y_pixels(layout_),
           chart.log_y, 5),
        largest_radius_(width == ChartWidth::Wide ? 24 : 15),
        svg_(layout_.width, layout_.height, chart.title, chart.note) {
    for (const ScatterPoint& point : points_) {
      if (std::isfinite(point.size)) largest_ = std::max(largest_, point.size);
    }
  }

  std::string draw() {
    draw_frame(svg_, layout_, x_, y_, chart_.x_label, chart_.y_label);
    draw_references();
    draw_front();
    for (const ScatterPoint& point : points_) draw_point(point);
    draw_key();
    for (const bool on_front : {true, false}) {
      for (const ScatterPoint& point : points_) {
        if (point.on_front == on_front) draw_label(point);
      }
    }
    return svg_.finish();
  }

 private:
  SvgPoint place(const ScatterPoint& point) const {
    return {x_.place(point.x.value), y_.place(point.y.value)};
  }

  double radius(const ScatterPoint& point) const {
    if (chart_.size_label.empty() || largest_ <= 0 || !(point.size > 0)) return 6;
    return std::max(4.0, largest_radius_ * std::sqrt(point.size / largest_));
  }

  void draw_references() {
    const ChartAxis::Range across = x_pixels(layout_), up = y_pixels(layout_);
    const auto draw_name = [&](const ReferenceLine& line, SvgPoint at) {
      svg_.add_text(at, concat(line.name, " ", format_number(line.value)), Anchor::Start,
                    "reference-name");
    };
    if (const auto& line = chart_.x_reference; line && std::isfinite(line->value)) {
      const double at = x_.place(line->value);
      svg_.add_line({at, up.low}, {at, up.high}, "reference");
      draw_name(*line, {at + 6, up.high + 12});
    }
    if (const auto& line = chart_.y_reference; line && std::isfinite(line->value)) {
      const double at = y_.place(line->value);
      svg_.add_line({across.low, at}, {across.high, at}, "reference");
      draw_name(*line, {across.low + 8, at - 7});
    }
  }

  void draw_front() {
    std::vector<SvgPoint> front;
    for (const ScatterPoint& point : points_) {
      if (point.on_front) front.push_back(place(point));
    }
    if (front.size() < 2) return;
    std::sort(front.begin(), front.end(),
              [](const SvgPoint& a, const SvgPoint& b) { return a.x < b.x; });
    svg_.add_polyline(front, "front");
  }

  void draw_point(const ScatterPoint& point) {
    const SvgPoint at = place(point);
    const auto [x_low, x_high] = whiskers_of(point.x);
    const auto [y_low, y_high] = whiskers_of(point.y);
    if (x_high > x_low) {
      svg_.add_line({x_.place(x_low), at.y}, {x_.place(x_high), at.y}, "whisker");
    }
    if (y_high > y_low) {
      svg_.add_line({at.x, y_.place(y_low)}, {at.x, y_.place(y_high)}, "whisker");
    }
    if (point.also_x && std::isfinite(*point.also_x)) {
      const double also = x_.place(*point.also_x);
      svg_.add_line({also, at.y}, at, "also");
      svg_.add_line({also, at.y - 5}, {also, at.y + 5}, "also");
    }
    std::string tooltip = concat(point.name, ": ", format_number(point.x.value), " ", point.x.unit,
                                 ", ", format_number(point.y.value), " ", point.y.unit);
    if (!chart_.size_label.empty()) {
      tooltip += concat(", ", format_number(point.size), " ", chart_.size_label);
    }
    svg_.add_circle(at, radius(point), point.on_front ? "bubble on-front" : "bubble", tooltip);
    const double core = radius(point);
    taken_.push_back({at.x - core, at.y - core, at.x + core, at.y + core});
  }

  // Places the label right, left, above or below the bubble: at the first position where it
  // overlaps neither a label nor a bubble, otherwise towards the middle. Points behind the front
  // for whose label there is no room have their name in the tooltip only.
  void draw_label(const ScatterPoint& point) {
    const SvgPoint at = place(point);
    const double gap = radius(point) + 5, width = text_width(point.name) * layout_.font;
    struct Room {
      SvgPoint at;
      Anchor anchor;
      double left;
    };
    const Room rooms[] = {{{at.x + gap, at.y + 4}, Anchor::Start, at.x + gap},
                          {{at.x - gap, at.y + 4}, Anchor::End, at.x - gap - width},
                          {{at.x, at.y - gap - 2}, Anchor::Middle, at.x - width / 2},
                          {{at.x, at.y + gap + 10}, Anchor::Middle, at.x - width / 2}};
    const Room* chosen = nullptr;
    for (const Room& room : rooms) {
      const Box box = box_of(room.left, room.at.y, width);
      const bool is_inside = box.left > 2 && box.right < layout_.width - 2 &&
                             box.top > layout_.top - 8 &&
                             box.bottom < layout_.height - layout_.bottom + 2;
      const bool is_free =
          std::none_of(taken_.begin(), taken_.end(), [&](const Box& b) { return b.meets(box); });
      if (is_inside && is_free) {
        chosen = &room;
        break;
      }
    }
    if (chosen == nullptr && !point.on_front && points_.size() > kMostLabels) return;
    if (chosen == nullptr) chosen = at.x > layout_.width * 0.6 ? &rooms[1] : &rooms[0];
    taken_.push_back(box_of(chosen->left, chosen->at.y, width));
    svg_.add_text(chosen->at, point.name, chosen->anchor, "label");
  }

  Box box_of(double left, double baseline, double width) const {
    return {left, baseline - layout_.font, left + width, baseline + 3};
  }

  // Right of the name of the y axis, or below it where the two do not fit side by side.
  void draw_key() {
    if (chart_.size_label.empty()) return;
    const std::string text =
        concat("area: ", chart_.size_label, ", largest ", format_number(largest_));
    const double right = layout_.width - layout_.right, width = text_width(text) * layout_.font;
    const double name_end = 4 + text_width(chart_.y_label) * layout_.font;
    const double y = right - width < name_end + 12 ? 15 + layout_.font + 2 : 15;
    svg_.add_text({right, y}, text, Anchor::End, "key");
    taken_.push_back(box_of(right - width, y, width));
  }

  const ScatterChart& chart_;
  std::vector<ScatterPoint> points_;
  ChartLayout layout_;
  ChartAxis x_, y_;
  double largest_radius_, largest_ = 0;
  SvgWriter svg_;
  std::vector<Box> taken_;
};

}  // namespace

std::string draw(const ScatterChart& chart, ChartWidth width) {
  return ScatterDrawing(chart, width).draw();
}

Json to_json(const ScatterChart& chart) {
  Json json;
  json["kind"] = "scatter";
  json["title"] = chart.title;
  json["x"] = chart.x_label;
  json["y"] = chart.y_label;
  json["size"] = chart.size_label.empty() ? Json() : Json(chart.size_label);
  json["points"] = Json::array();
  for (const ScatterPoint& point : chart.points) {
    json["points"].push_back({{"name", point.name},
                              {"x", to_json(point.x)},
                              {"y", to_json(point.y)},
                              {"size", std::isfinite(point.size) ? Json(point.size) : Json()},
                              {"on_front", point.on_front}});
    if (point.also_x) json["points"].back()["also_x"] = *point.also_x;
  }
  const auto add_reference = [&](const char* key, const std::optional<ReferenceLine>& line) {
    if (line) json[key] = {{"name", line->name}, {"value", line->value}};
  };
  add_reference("x_reference", chart.x_reference);
  add_reference("y_reference", chart.y_reference);
  return json;
}

}  // namespace hone::report
