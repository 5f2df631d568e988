// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "hone/core/check.h"
#include "hone/report/chart.h"
#include "hone/report/chart_frame.h"

namespace hone::report {
namespace {

// Names are left of the bars on a wide page and above them on a phone.
struct BarLayout {
  double width, name_room, value_room, bar_height, row_height, group_height, top, font;
  bool name_above;
};

constexpr double kBottom = 46;

BarLayout bar_layout(ChartWidth width) {
  if (width == ChartWidth::Wide) return {860, 220, 150, 16, 30, 38, 0, 13, false};
  return {360, 0, 100, 14, 44, 38, 0, 12, true};
}

double largest_value(const BarChart& chart) {
  double largest = chart.reference ? chart.reference->value : 0;
  for (const BarGroup& group : chart.groups) {
    for (const Bar& bar : group.bars) {
      if (std::isfinite(bar.figure.value)) largest = std::max(largest, bar.figure.value);
      if (bar.figure.p90 && std::isfinite(*bar.figure.p90)) {
        largest = std::max(largest, *bar.figure.p90);
      }
    }
  }
  return largest;
}

double height_of(const BarChart& chart, const BarLayout& layout) {
  double height = layout.top + kBottom;
  for (const BarGroup& group : chart.groups) {
    height += group.name.empty() ? 0 : layout.group_height;
    height += layout.row_height * static_cast<double>(group.bars.size());
  }
  return height;
}

class BarDrawing {
 public:
  BarDrawing(const BarChart& chart, ChartWidth width)
      : chart_(chart),
        layout_(bar_layout(width)),
        height_(height_of(chart, layout_)),
        axis_({0, std::max(largest_value(chart), 1e-300)},
              {layout_.name_room + 8, layout_.width - layout_.value_room}, false,
              width == ChartWidth::Wide ? 6 : 3),
        svg_(layout_.width, height_, chart.title, chart.note) {}

  std::string draw() {
    const double bottom = height_ - kBottom;
    for (double tick : axis_.ticks()) {
      const double at = axis_.place(tick);
      svg_.add_line({at, layout_.top}, {at, bottom}, "grid");
      svg_.add_text({at, bottom + 18}, axis_.format_tick(tick), Anchor::Middle, "tick");
    }
    svg_.add_text({axis_.place(0), height_ - 6}, chart_.value_label, Anchor::Start, "axis-name");
    double y = layout_.top;
    for (const BarGroup& group : chart_.groups) y = draw_group(group, y);
    if (chart_.reference) {
      const double at = axis_.place(chart_.reference->value);
      svg_.add_line({at, layout_.top}, {at, bottom}, "reference");
      svg_.add_text({at + 6, height_ - 6}, chart_.reference->name, Anchor::Start, "reference-name");
    }
    return svg_.finish();
  }

 private:
  double draw_group(const BarGroup& group, double y) {
    if (!group.name.empty()) {
      svg_.add_text({0, y + layout_.group_height - 10}, group.name, Anchor::Start, "group-name");
      y += layout_.group_height;
    }
    for (const Bar& bar : group.bars) {
      draw_bar(bar, y);
      y += layout_.row_height;
    }
    return y;
  }

  void draw_bar(const Bar& bar, double y) {
    const double top = y + layout_.row_height - layout_.bar_height - 6;
    const double middle = top + layout_.bar_height / 2, zero = axis_.place(0);
    if (layout_.name_above) {
      svg_.add_text({0, top - 5}, bar.name, Anchor::Start, "label");
    } else {
      svg_.add_text({layout_.name_room, middle + 4}, bar.name, Anchor::End, "label");
    }
    const Figure& figure = bar.figure;
    const std::string value =
        concat(format_number(figure.value, figure.decimals), " ", figure.unit);
    double end = zero;
    if (std::isfinite(figure.value)) {
      const double length = std::max(1.0, axis_.place(std::max(0.0, figure.value)) - zero);
      svg_.add_rectangle({zero, top}, {length, layout_.bar_height},
                         bar.highlighted ? "bar ours" : "bar", concat(bar.name, ": ", value));
      end = zero + length;
    }
    if (figure.p10 && figure.p90) {
      draw_whisker(*figure.p10, *figure.p90, middle);
      end = std::max(end, axis_.place(*figure.p90));
    }
    svg_.add_text({end + 9, middle + 4}, value, Anchor::Start,
                  bar.highlighted ? "value ours" : "value");
  }

  void draw_whisker(double low, double high, double middle) {
    if (!std::isfinite(low) || !std::isfinite(high)) return;
    const double from = axis_.place(std::max(0.0, low)), to = axis_.place(high);
    svg_.add_line({from, middle}, {to, middle}, "whisker");
    svg_.add_line({from, middle - 4}, {from, middle + 4}, "whisker");
    svg_.add_line({to, middle - 4}, {to, middle + 4}, "whisker");
  }

  const BarChart& chart_;
  BarLayout layout_;
  double height_;
  ChartAxis axis_;
  SvgWriter svg_;
};

}  // namespace

std::string draw(const BarChart& chart, ChartWidth width) {
  return BarDrawing(chart, width).draw();
}

Json to_json(const BarChart& chart) {
  Json json;
  json["kind"] = "bars";
  json["title"] = chart.title;
  json["value"] = chart.value_label;
  json["groups"] = Json::array();
  for (const BarGroup& group : chart.groups) {
    Json bars = Json::array();
    for (const Bar& bar : group.bars) {
      bars.push_back({{"name", bar.name}, {"figure", to_json(bar.figure)}});
    }
    json["groups"].push_back({{"name", group.name}, {"bars", std::move(bars)}});
  }
  if (chart.reference) {
    json["reference"] = {{"name", chart.reference->name}, {"value", chart.reference->value}};
  }
  return json;
}

}  // namespace hone::report
