// SPDX-License-Identifier: Apache-2.0
// Blocks of reports on images: heat maps, clouds of points and pictures.
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "hone/core/error.h"
#include "hone/report/bundle.h"
#include "tests/report/report_xml.h"

namespace hone::report {
namespace {

const std::string kHostile = "</title><script>alert(1)</script> \"&\x01\xff";

Index count_of(const std::string& text, const std::string& part) {
  Index count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A diagonal of 3, and 1 from each class to the next.
Heatmap heatmap(std::size_t size) {
  Heatmap map;
  map.title = "Confusion";
  map.row_label = "class";
  map.column_label = "predicted";
  map.counts.resize(size * size);
  for (std::size_t i = 0; i < size; ++i) {
    map.names.push_back("class " + std::to_string(i));
    map.counts[i * size + i] = 3;
    map.counts[i * size + (i + 1) % size] += 1;
  }
  return map;
}

TEST(Heatmap, draws_the_cells_that_are_not_empty_within_its_frame) {
  for (const std::size_t size : {2, 10, 100}) {
    const Heatmap map = heatmap(size);
    const auto rows = static_cast<Index>(size);
    for (const auto& [width, room] :
         {std::pair{ChartWidth::Wide, 860.0}, std::pair{ChartWidth::Phone, 360.0}}) {
      const std::string svg = draw(map, width);
      EXPECT_EQ(test::find_xml_fault(svg), "");
      EXPECT_EQ(count_of(svg, "heat hit q6"), rows) << "three quarters of a row";
      EXPECT_EQ(count_of(svg, "heat miss q2"), rows);
      EXPECT_EQ(count_of(svg, "class 1, class 0: 1"), size == 2 ? 1 : 0);
      const std::regex corner("<rect[^>]* x=\"(-?[0-9.]+)\"[^>]* width=\"([0-9.]+)\"");
      Index found = 0;
      for (std::sregex_iterator cell(svg.begin(), svg.end(), corner), end; cell != end;
           ++cell, ++found) {
        EXPECT_GE(std::stod((*cell)[1].str()), 0);
        EXPECT_LE(std::stod((*cell)[1].str()) + std::stod((*cell)[2].str()), room);
      }
      EXPECT_EQ(found, 2 * rows + 1) << "the cells and the frame";
      EXPECT_LE(count_of(svg, "rotate(-90)"), rows);
      EXPECT_GE(count_of(svg, "rotate(-90)"), 2) << "some names are there";
    }
  }
}

TEST(Heatmap, json_has_what_is_not_0) {
  const Json json = to_json(heatmap(3));
  EXPECT_EQ(json.at("cells").size(), 6u);
  EXPECT_EQ(json.at("cells").at(1), Json::array({0, 1, 1}));
  EXPECT_EQ(json.at("names").size(), 3u);
}

TEST(Heatmap, cuts_long_names_and_escapes_them) {
  Heatmap map = heatmap(2);
  map.names = {std::string(300, 'm'), "ä" + kHostile};
  for (const ChartWidth width : {ChartWidth::Wide, ChartWidth::Phone}) {
    const std::string svg = draw(map, width);
    EXPECT_EQ(test::find_xml_fault(svg), "");
    EXPECT_NE(svg.find("mmm…</text>"), std::string::npos);
    EXPECT_EQ(svg.find("<script>"), std::string::npos);
  }
  EXPECT_EQ(test::find_xml_fault(draw(Heatmap{}, ChartWidth::Wide)), "");
  map.counts.pop_back();
  EXPECT_THROW(draw(map, ChartWidth::Wide), Error);
}

PointCloud cloud(std::size_t groups) {
  PointCloud made;
  made.title = "Features";
  made.x_label = "first";
  made.y_label = "second";
  for (std::size_t i = 0; i < groups; ++i) {
    made.groups.push_back("group " + std::to_string(i));
    made.points.push_back({static_cast<double>(i), std::sin(static_cast<double>(i)), i});
  }
  return made;
}

TEST(PointCloud, colors_points_by_group_and_lists_few_of_them) {
  for (const std::size_t groups : {1, 20, 21}) {
    const PointCloud made = cloud(groups);
    for (const ChartWidth width : {ChartWidth::Wide, ChartWidth::Phone}) {
      const std::string svg = draw(made, width);
      EXPECT_EQ(test::find_xml_fault(svg), "");
      EXPECT_EQ(count_of(svg, "<circle"), static_cast<Index>(groups));
      EXPECT_EQ(count_of(svg, "\"cloud c0\""), groups > 20 ? 2 : 1);
    }
    Report report;
    report.sections = {{"s", "", {made}}};
    const std::string html = render_html(report);
    EXPECT_EQ(count_of(html, "<ul class=\"legend\">"), groups > 20 ? 0 : 1);
    for (std::size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(count_of(html, "\n.c" + std::to_string(i) + " {") +
                    count_of(html, " .c" + std::to_string(i) + " {"),
                1)
          << "the style has every color";
    }
  }
}

TEST(PointCloud, survives_degenerate_points_and_refuses_unknown_groups) {
  PointCloud made = cloud(1);
  made.points = {{0, 0, 0}, {std::nan(""), 1, 0}};
  EXPECT_EQ(count_of(draw(made, ChartWidth::Wide), "<circle"), 1);
  EXPECT_EQ(to_json(made).at("points").size(), 1u);
  EXPECT_EQ(test::find_xml_fault(draw(PointCloud{}, ChartWidth::Phone)), "");
  made.points.push_back({0, 0, 1});
  EXPECT_THROW(draw(made, ChartWidth::Wide), Error);
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

TEST(Pictures, draw_boxes_over_the_embedded_image_and_fetch_nothing) {
  Picture picture;
  picture.name = kHostile;
  picture.note = "wrong";
  picture.width = 60;
  picture.height = 30;
  picture.png = bytes_of("foobar");
  picture.boxes = {{15, 10, 30, 20, "1"}, {0, 0, 60, 30, kHostile}};
  const std::string svg = draw(picture);
  EXPECT_EQ(test::find_xml_fault(svg), "");
  EXPECT_NE(svg.find("viewBox=\"0 0 240 120\""), std::string::npos);
  EXPECT_NE(svg.find("href=\"data:image/png;base64,Zm9vYmFy\""), std::string::npos);
  EXPECT_NE(svg.find("x=\"60\" y=\"40\" width=\"120\" height=\"80\""), std::string::npos);
  picture.marked = true;
  Report report;
  report.sections = {{"s", "", {Pictures{kHostile, kHostile, {picture, picture}}}}};
  const std::string html = render_html(report);
  EXPECT_EQ(count_of(html, "<div class=\"marked\">"), 2);
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_FALSE(std::regex_search(html, std::regex("https?:|src=|@import|url\\(")));
  const Json json = to_json(report)["sections"][0]["blocks"][0];
  EXPECT_EQ(json["pictures"][1]["boxes"][0]["left"], 15);
  EXPECT_FALSE(json["pictures"][0].contains("png"));
  picture.width = 0;
  EXPECT_THROW(draw(picture), Error);
}

}  // namespace
}  // namespace hone::report
