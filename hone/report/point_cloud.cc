// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "hone/core/check.h"
#include "hone/report/chart.h"
#include "hone/report/chart_frame.h"

namespace hone::report {
namespace {

std::vector<CloudPoint> drawable_points(const PointCloud& cloud) {
  std::vector<CloudPoint> points;
  for (const CloudPoint& point : cloud.points) {
    HONE_CHECK(point.group < cloud.groups.size(), "point cloud",
               concat("a group below ", cloud.groups.size()), point.group);
    if (std::isfinite(point.x) && std::isfinite(point.y)) points.push_back(point);
  }
  return points;
}

}  // namespace

std::string group_color(std::size_t group) { return concat("c", group % kGroupColors); }

std::string draw(const PointCloud& cloud, ChartWidth width) {
  const std::vector<CloudPoint> points = drawable_points(cloud);
  const ChartLayout layout = layout_of(width);
  std::vector<double> across, up;
  for (const CloudPoint& point : points) {
    across.push_back(point.x);
    up.push_back(point.y);
  }
  const bool wide = width == ChartWidth::Wide;
  const ChartAxis x(range_of(across), x_pixels(layout), false, wide ? 8 : 5);
  const ChartAxis y(range_of(up), y_pixels(layout), false, 5);
  SvgWriter svg(layout.width, layout.height, cloud.title, cloud.note);
  draw_frame(svg, layout, x, y, cloud.x_label, cloud.y_label);
  for (const CloudPoint& point : points) {
    svg.add_circle({x.place(point.x), y.place(point.y)}, wide ? 3.5 : 2.5,
                   concat("cloud ", group_color(point.group)), cloud.groups[point.group]);
  }
  return svg.finish();
}

Json to_json(const PointCloud& cloud) {
  Json json = {{"kind", "cloud"}, {"title", cloud.title}, {"x", cloud.x_label}};
  json["y"] = cloud.y_label;
  json["groups"] = Json::array();
  for (const std::string& name : cloud.groups) json["groups"].push_back(clean_text(name));
  json["points"] = Json::array();
  for (const CloudPoint& point : drawable_points(cloud)) {
    json["points"].push_back({point.x, point.y, point.group});
  }
  return json;
}

}  // namespace hone::report
