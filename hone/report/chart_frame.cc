// SPDX-License-Identifier: Apache-2.0
#include "hone/report/chart_frame.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hone::report {

ChartLayout layout_of(ChartWidth width) {
  if (width == ChartWidth::Wide) return {860, 420, 62, 24, 34, 52, 13};
  return {360, 340, 46, 12, 34, 46, 12};
}

ChartAxis::Range x_pixels(const ChartLayout& layout) {
  return {layout.left, layout.width - layout.right};
}

ChartAxis::Range y_pixels(const ChartLayout& layout) {
  return {layout.height - layout.bottom, layout.top};
}

void draw_frame(SvgWriter& svg, const ChartLayout& layout, const ChartAxis& x, const ChartAxis& y,
                const std::string& x_label, const std::string& y_label) {
  const ChartAxis::Range across = x_pixels(layout), up = y_pixels(layout);
  for (double tick : y.ticks()) {
    const double at = y.place(tick);
    svg.add_line({across.low, at}, {across.high, at}, "grid");
    svg.add_text({across.low - 8, at + 4}, y.format_tick(tick), Anchor::End, "tick");
  }
  svg.add_line({across.low, up.low}, {across.high, up.low}, "axis");
  double free_from = -std::numeric_limits<double>::infinity();
  for (double tick : x.ticks()) {
    const std::string text = x.format_tick(tick);
    const double at = x.place(tick), half = text_width(text) * layout.font / 2;
    svg.add_line({at, up.low}, {at, up.low + 5}, "axis");
    if (at - half < free_from || at + half > layout.width) continue;  // would touch another label
    svg.add_text({at, up.low + 19}, text, Anchor::Middle, "tick");
    free_from = at + half + 8;
  }
  svg.add_text({across.high, layout.height - 8}, x_label, Anchor::End, "axis-name");
  svg.add_text({4, 15}, y_label, Anchor::Start, "axis-name");
}

ChartAxis::Range range_of(const std::vector<double>& values) {
  ChartAxis::Range range{std::numeric_limits<double>::infinity(),
                         -std::numeric_limits<double>::infinity()};
  for (double value : values) {
    if (!std::isfinite(value)) continue;
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
  }
  return range.low <= range.high ? range : ChartAxis::Range{0, 1};
}

}  // namespace hone::report
