// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "hone/core/check.h"
#include "hone/report/chart.h"
#include "hone/report/chart_frame.h"
#include "hone/report/html.h"

namespace hone::report {
namespace {

// What stands within the <svg> element of a drawing. The page's style gives elements of that name
// a width, so that drawings become groups.
std::string_view inside_of(std::string_view drawing) {
  constexpr std::string_view kClose = "</svg>";
  const auto begin = drawing.find('>'), end = drawing.rfind(kClose);
  HONE_REQUIRE(drawing.starts_with("<svg") && begin < end && end != std::string_view::npos,
               "svg_file", "A panel must be a drawing.");
  return drawing.substr(begin + 1, end - begin - 1);
}

}  // namespace

std::string svg_file(const std::string& title, const std::vector<std::string>& drawings,
                     int columns, ChartWidth width) {
  HONE_CHECK(columns >= 1, "svg_file", "at least one column", columns);
  const ChartLayout layout = layout_of(width);
  const int count = static_cast<int>(drawings.size());
  const int across = std::min(columns, std::max(count, 1));
  const int down = std::max(1, (count + columns - 1) / columns);
  constexpr double kGap = 28, kTitle = 44;
  const double panel_width = layout.width + kGap, panel_height = layout.height + kGap;
  std::string out = concat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ",
                           across * panel_width, " ", kTitle + down * panel_height,
                           "\" role=\"img\">\n<title>", escape_markup(title), "</title>\n");
  out +=
      concat("<style>", escape_markup(kPageStyle), "svg { background: var(--paper); }</style>\n");
  out += concat("<text x=\"", kGap / 2, "\" y=\"26\" class=\"group-name\">", escape_markup(title),
                "</text>\n");
  for (int i = 0; i < count; ++i) {
    const auto drawing = inside_of(drawings[static_cast<std::size_t>(i)]);
    out += concat("<g transform=\"translate(", (i % columns) * panel_width + kGap / 2, " ",
                  kTitle + (i / columns) * panel_height, ")\">", drawing, "</g>\n");
  }
  return out + "</svg>\n";
}

}  // namespace hone::report
