// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/vision_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace hone::app {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Example {
  VisionCard card;
  VisionReportData data;
};

// Three images of each class, the last of them taken for the next class.
Example example(Index classes) {
  Example out;
  out.data.model = "run/model";
  out.data.data = "flowers";
  for (Index label = 0; label < classes; ++label) {
    const std::string name = "class" + std::to_string(label);
    out.data.classes.push_back(name);
    out.card.classes.push_back({name, 3, 2});
    for (Index i = 0; i < 3; ++i) {
      out.data.labels.push_back(label);
      out.data.predictions.push_back(i == 2 ? (label + 1) % classes : label);
      out.data.plane.push_back({static_cast<double>(label), static_cast<double>(i)});
    }
  }
  out.card.images = 3 * classes;
  out.card.accuracy = out.card.balanced_accuracy = 2.0 / 3;
  out.card.reliability = {{}, {1, 0.7, 0.5}, {2, 0.9, 1}};
  out.card.confused = {{"class0", "class1", 1}};
  out.card.neighbor_accuracy = 0.5;
  return out;
}

template <class Kind>
const Kind* find_block(const report::Report& report) {
  for (const report::Section& section : report.sections) {
    for (const report::Block& block : section.blocks) {
      if (const auto* found = std::get_if<Kind>(&block)) return found;
    }
  }
  return nullptr;
}

TEST(VisionReport, has_the_figures_of_the_card) {
  const Example given = example(4);
  const report::Report report = make_vision_report(given.card, given.data);
  const auto* map = find_block<report::Heatmap>(report);
  ASSERT_NE(map, nullptr);
  EXPECT_EQ(map->names, given.data.classes);
  EXPECT_EQ(map->counts, (std::vector<Index>{2, 1, 0, 0, 0, 2, 1, 0, 0, 0, 2, 1, 1, 0, 0, 2}));
  const auto* cloud = find_block<report::PointCloud>(report);
  ASSERT_NE(cloud, nullptr);
  EXPECT_EQ(cloud->points.size(), 12u);
  EXPECT_EQ(cloud->points[7].group, 2u);
  EXPECT_EQ(cloud->points[7].y, 1);
  const auto* chart = find_block<report::LineChart>(report);
  ASSERT_NE(chart, nullptr);
  ASSERT_EQ(chart->series[1].points.size(), 2u) << "bins without images are left out";
  EXPECT_EQ(chart->series[1].points[0].x, 0.7);
  EXPECT_EQ(report.extra.at("card"), to_json(given.card));
  const std::string html = render_html(report);
  EXPECT_THAT(html, HasSubstr("class=\"legend\""));
  EXPECT_THAT(html, HasSubstr("66.67"));
  EXPECT_EQ(find_block<report::Pictures>(report), nullptr);
}

TEST(VisionReport, has_no_features_without_them) {
  Example given = example(3);
  given.data.plane.clear();
  const report::Report report = make_vision_report(given.card, given.data);
  EXPECT_EQ(find_block<report::PointCloud>(report), nullptr);
}

TEST(VisionReport, of_many_classes_draws_those_with_errors_and_some_of_the_points) {
  Example given = example(800);
  std::ranges::copy(given.data.labels, given.data.predictions.begin());
  for (const std::size_t wrong : {std::size_t{3 * 500}, std::size_t{3 * 700}}) {
    given.data.predictions[wrong] = 799;
  }
  const report::Report report = make_vision_report(given.card, given.data);
  const auto* map = find_block<report::Heatmap>(report);
  ASSERT_EQ(map->names.size(), 100u);
  for (const char* name : {"class500", "class700", "class799"}) {
    EXPECT_TRUE(std::ranges::count(map->names, name) == 1) << name;
  }
  EXPECT_THAT(map->note, HasSubstr("The 100 classes with the most errors are drawn."));
  const auto* cloud = find_block<report::PointCloud>(report);
  EXPECT_EQ(cloud->points.size(), 2000u);
  EXPECT_THAT(cloud->note, HasSubstr("2000 of 2400"));
  EXPECT_THAT(render_html(report), Not(HasSubstr("class=\"legend\"")));
}

TEST(VisionReport, of_a_hundred_classes_leaves_none_out) {
  const Example given = example(100);
  const report::Report report = make_vision_report(given.card, given.data);
  const auto* map = find_block<report::Heatmap>(report);
  EXPECT_EQ(map->names.size(), 100u);
  EXPECT_THAT(map->note, Not(HasSubstr("classes")));
}

TEST(VisionReport, names_from_files_stay_text) {
  const std::string hostile = "</script><script>alert(1)</script><b onload=\"x\">&\x01\xff";
  Example given = example(2);
  given.data.classes[1] = given.data.model = given.data.data = hostile;
  given.card.classes[1].name = given.card.confused[0].name = hostile;
  given.card.confused[0].predicted = hostile;
  given.card.comparison = VisionComparison{.baseline = hostile};
  report::Picture picture;
  picture.name = picture.note = hostile;
  picture.width = picture.height = 2;
  picture.boxes.push_back({0, 0, 1, 1, hostile});
  given.data.pictures.push_back(picture);
  const std::string html = render_html(make_vision_report(given.card, given.data));
  EXPECT_THAT(html, HasSubstr("&lt;/script&gt;"));
  for (const char* part : {"<script>alert", "<b onload", "\x01", "\xff"}) {
    EXPECT_THAT(html, Not(HasSubstr(part)));
  }
}

}  // namespace
}  // namespace hone::app
