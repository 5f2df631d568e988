// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "hone/core/check.h"
#include "hone/report/chart.h"

namespace hone::report {
namespace {

constexpr int kShades = 8;  // as in the page's style
constexpr double kLargestCell = 36;

// `text`, cut so that it is at most `room` font sizes wide.
std::string shortened(std::string_view text, double room) {
  if (text_width(text) <= room) return std::string(text);
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) ++end;
    const std::string longer = out + std::string(text.substr(i, end - i));
    if (text_width(longer) + 0.8 > room) break;
    out = longer;
    i = end;
  }
  return out + "…";
}

class HeatmapDrawing {
 public:
  HeatmapDrawing(const Heatmap& map, ChartWidth width)
      : map_(map),
        size_(static_cast<double>(map.names.size())),
        font_(width == ChartWidth::Wide ? 13 : 12),
        width_(width == ChartWidth::Wide ? 860 : 360),
        room_(std::min(longest_name() * font_ + 4, width == ChartWidth::Wide ? 190.0 : 84.0)),
        left_(room_ + 8),
        top_(room_ + 30),
        cell_(std::min(kLargestCell, (width_ - left_ - 4) / std::max(1.0, size_))),
        svg_(width_, top_ + size_ * cell_ + 4, map.title, map.note) {}

  std::string draw() {
    svg_.add_text({4, 15}, map_.row_label, Anchor::Start, "axis-name");
    svg_.add_text({left_ + size_ * cell_, 15}, map_.column_label, Anchor::End, "axis-name");
    svg_.add_rectangle({left_, top_}, {size_ * cell_, size_ * cell_}, "heat frame");
    draw_names();
    for (std::size_t row = 0; row < map_.names.size(); ++row) draw_row(row);
    return svg_.finish();
  }

 private:
  double longest_name() const {
    double longest = 0;
    for (const std::string& name : map_.names) longest = std::max(longest, text_width(name));
    return longest;
  }

  // As many names as there is room for, evenly.
  void draw_names() {
    const auto every = static_cast<std::size_t>(std::ceil((font_ + 2) / cell_));
    for (std::size_t i = 0; i < map_.names.size(); i += every) {
      const double middle = (static_cast<double>(i) + 0.5) * cell_ + 4;
      const std::string name = shortened(map_.names[i], room_ / font_);
      svg_.add_text({left_ - 6, top_ + middle}, name, Anchor::End, "tick");
      svg_.add_upward_text({left_ + middle, top_ - 6}, name, "tick");
    }
  }

  void draw_row(std::size_t row) {
    const std::size_t size = map_.names.size();
    const auto begin = map_.counts.begin() + static_cast<std::ptrdiff_t>(row * size);
    const auto sum = static_cast<double>(
        std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(size), Index{0}));
    for (std::size_t column = 0; column < size; ++column) {
      const Index count = map_.counts[row * size + column];
      if (count <= 0) continue;
      const double share = static_cast<double>(count) / sum;
      const int shade = std::clamp(static_cast<int>(std::ceil(share * kShades)), 1, kShades);
      const SvgPoint corner{left_ + static_cast<double>(column) * cell_,
                            top_ + static_cast<double>(row) * cell_};
      svg_.add_rectangle(corner, {cell_, cell_},
                         concat("heat ", row == column ? "hit" : "miss", " q", shade),
                         concat(map_.names[row], ", ", map_.names[column], ": ", count));
      const std::string text = concat(count);
      if (text_width(text) * font_ + 4 > cell_) continue;
      svg_.add_text({corner.x + cell_ / 2, corner.y + cell_ / 2 + 4}, text, Anchor::Middle,
                    "label");
    }
  }

  const Heatmap& map_;
  double size_, font_, width_, room_, left_, top_, cell_;
  SvgWriter svg_;
};

}  // namespace

std::string draw(const Heatmap& map, ChartWidth width) {
  HONE_CHECK(map.counts.size() == map.names.size() * map.names.size(), "heat map",
             concat(map.names.size(), " rows and columns of counts"), map.counts.size());
  return HeatmapDrawing(map, width).draw();
}

Json to_json(const Heatmap& map) {
  Json json = {{"kind", "heatmap"},
               {"title", map.title},
               {"rows", map.row_label},
               {"columns", map.column_label}};
  json["names"] = Json::array();
  for (const std::string& name : map.names) json["names"].push_back(clean_text(name));
  json["cells"] = Json::array();
  for (std::size_t i = 0; i < map.counts.size(); ++i) {
    if (map.counts[i] == 0) continue;
    json["cells"].push_back({i / map.names.size(), i % map.names.size(), map.counts[i]});
  }
  return json;
}

}  // namespace hone::report
