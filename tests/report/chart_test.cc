// SPDX-License-Identifier: Apache-2.0
#include "hone/report/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "hone/core/check.h"
#include "hone/report/chart_axis.h"
#include "tests/report/report_xml.h"

namespace hone::report {
namespace {

TEST(Figure, numbers_read_well) {
  EXPECT_EQ(format_number(0), "0");
  EXPECT_EQ(format_number(0.1301), "0.1301");
  EXPECT_EQ(format_number(0.87), "0.87");
  EXPECT_EQ(format_number(31.23456), "31.23");
  EXPECT_EQ(format_number(9999), "9999");
  EXPECT_EQ(format_number(1234567), "1\u202F234\u202F567");
  EXPECT_EQ(format_number(12345.678), "12\u202F346");
  EXPECT_EQ(format_number(-2.5), "\u22122.5");
  EXPECT_EQ(format_number(1.23e-7), "1.23e-07");
  EXPECT_EQ(format_number(1, 4), "1.0000");
  EXPECT_EQ(format_number(std::nan("")), "–");
  EXPECT_EQ(decimals_shown(98.7), 1);
  EXPECT_EQ(decimals_shown(98), 0);
}

TEST(Figure, interval_prefers_the_confidence_interval) {
  Figure figure;
  EXPECT_EQ(format_interval(figure), "");
  figure.p10 = 1;
  figure.p90 = 3;
  EXPECT_EQ(format_interval(figure), "[1, 3]");
  figure.ci = {1.5, 2.5};
  EXPECT_EQ(format_interval(figure), "[1.5, 2.5]");
}

TEST(ChartAxis, linear_ticks_are_round_and_cover_the_data) {
  const ChartAxis axis({0.03, 0.97}, {0, 100}, false, 5);
  EXPECT_EQ(axis.ticks().size(), 6u);
  EXPECT_NEAR(axis.place(0), 0, 1e-9);
  EXPECT_NEAR(axis.place(1), 100, 1e-9);
  EXPECT_EQ(axis.format_tick(axis.ticks()[1]), "0.2");
}

TEST(ChartAxis, data_fit_keeps_the_ends) {
  const ChartAxis axis({3, 97}, {10, 20}, false, 5, ChartAxis::Fit::Data);
  EXPECT_DOUBLE_EQ(axis.place(3), 10);
  EXPECT_DOUBLE_EQ(axis.place(97), 20);
  EXPECT_EQ(axis.ticks(), (std::vector<double>{20, 40, 60, 80}));
}

TEST(ChartAxis, logarithmic_places_are_proportional_to_the_logarithm) {
  const ChartAxis axis({0.1, 1000}, {0, 1}, true, 4);
  EXPECT_NEAR(axis.place(10) - axis.place(1), axis.place(100) - axis.place(10), 1e-12);
  EXPECT_GE(axis.ticks().size(), 4u);
  EXPECT_TRUE(ChartAxis({0.1, 1}, {0, 1}, true, 4).is_logarithmic());
  EXPECT_FALSE(ChartAxis({0, 1}, {0, 1}, true, 4).is_logarithmic());
}

// Any range gives between 2 and 16 ticks, rising, inside the drawing.
TEST(ChartAxis, every_range_has_a_sensible_number_of_ticks) {
  for (double low : {1e-9, 0.00123, 0.9, 1.0, 37.0, 1e6}) {
    for (double ratio : {1.0, 1.0001, 1.05, 1.5, 3.0, 12.0, 1e3, 1e9}) {
      for (bool logarithmic : {false, true}) {
        const ChartAxis axis({low, low * ratio}, {0, 100}, logarithmic, 5);
        ASSERT_GE(axis.ticks().size(), 2u) << low << " x " << ratio << " " << logarithmic;
        EXPECT_LE(axis.ticks().size(), 16u) << low << " x " << ratio << " " << logarithmic;
        for (std::size_t i = 0; i < axis.ticks().size(); ++i) {
          const double at = axis.place(axis.ticks()[i]);
          EXPECT_TRUE(at >= -1e-6 && at <= 100 + 1e-6) << low << " x " << ratio;
          EXPECT_TRUE(i == 0 || axis.ticks()[i] > axis.ticks()[i - 1]);
        }
      }
    }
  }
}

TEST(LineChart, thinning_keeps_spikes) {
  std::vector<SvgPoint> points;
  for (int i = 0; i < 10000; ++i)
    points.push_back({double(i), i == 5000 ? 9.0 : i == 71 ? -9.0 : 0});
  const auto kept = thin_out(points, 200);
  EXPECT_LE(kept.size(), 200u);
  double low = 0, high = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    low = std::min(low, kept[i].y);
    high = std::max(high, kept[i].y);
    EXPECT_TRUE(i == 0 || kept[i].x > kept[i - 1].x);
  }
  EXPECT_EQ(low, -9);
  EXPECT_EQ(high, 9);
}

TEST(LineChart, takes_six_series_whose_key_stays_inside) {
  LineChart chart;
  chart.y_label = "milliseconds";
  for (int i = 1; i <= 6; ++i) chart.series.push_back({concat(i * 16), {{1, 1.0 * i}, {2, 2.0}}});
  for (const ChartWidth width : {ChartWidth::Wide, ChartWidth::Phone}) {
    const std::string svg = draw(chart, width);
    EXPECT_EQ(test::find_xml_fault(svg), "");
    EXPECT_NE(svg.find("<polyline class=\"line s6\""), std::string::npos);
    EXPECT_EQ(svg.find("x1=\"-"), std::string::npos) << "left of the drawing";
  }
  chart.series.push_back({"more", {}});
  EXPECT_THROW(draw(chart, ChartWidth::Wide), Error);
}

TEST(ScatterChart, shows_references_and_a_second_x) {
  ScatterChart chart;
  ScatterPoint& point = chart.points.emplace_back();
  point.x.value = 4;
  point.y.value = 1;
  point.also_x = 2.0;
  chart.x_reference = {"break-even", 8};
  chart.y_reference = {"dense", 3};
  const std::string svg = draw(chart, ChartWidth::Wide);
  EXPECT_EQ(test::find_xml_fault(svg), "");
  EXPECT_NE(svg.find(">break-even 8<"), std::string::npos);
  EXPECT_NE(svg.find(">dense 3<"), std::string::npos);
  EXPECT_NE(svg.find("class=\"also\""), std::string::npos);
  const Json json = to_json(chart);
  EXPECT_EQ(json["points"][0]["also_x"], 2.0);
  EXPECT_EQ(json["x_reference"]["value"], 8.0);
}

TEST(ScatterChart, of_many_points_names_the_front_and_what_else_has_room) {
  ScatterChart chart;
  for (int i = 0; i < 40; ++i) {
    ScatterPoint& point = chart.points.emplace_back();
    point.name = "behind_" + std::to_string(i);
    point.x.value = 5 + 0.001 * i;
    point.y.value = 7;
  }
  chart.points[25].on_front = true;
  chart.points[25].name = "chosen";
  const std::string svg = draw(chart, ChartWidth::Wide);
  EXPECT_NE(svg.find(">chosen<"), std::string::npos);
  std::size_t labels = 0;
  const std::string label = "class=\"label\"";
  for (auto at = svg.find(label); at != std::string::npos; at = svg.find(label, at + 1)) ++labels;
  EXPECT_GT(labels, 1u);
  EXPECT_LT(labels, 40u);
  for (int i = 0; i < 40; ++i) {
    EXPECT_NE(svg.find(chart.points[i].name + ": "), std::string::npos) << "a tooltip";
  }
}

TEST(ScatterChart, of_values_from_zero_has_no_negative_axis) {
  ScatterChart chart;
  for (const double value : {0.0, 10.0}) {
    ScatterPoint& point = chart.points.emplace_back();
    point.x.value = point.y.value = value;
  }
  const std::string minus = "\u2212";
  EXPECT_EQ(draw(chart, ChartWidth::Wide).find(minus), std::string::npos);
  chart.points[0].x.value = -1;
  EXPECT_NE(draw(chart, ChartWidth::Wide).find(minus), std::string::npos);
}

TEST(SvgFile, holds_each_drawing_with_the_style) {
  LineChart chart;
  chart.title = "<one>";
  chart.series = {{"a", {{0, 1}, {1, 2}}}};
  const std::string drawing = draw(chart, ChartWidth::Wide);
  const std::string file = svg_file("a & b", {drawing, drawing, drawing}, 2, ChartWidth::Wide);
  EXPECT_EQ(test::find_xml_fault(file), "");
  EXPECT_NE(file.find("xmlns=\"http://www.w3.org/2000/svg\""), std::string::npos);
  EXPECT_NE(file.find(".line.s1"), std::string::npos);
  std::size_t groups = 0;
  for (auto at = file.find("<g "); at != std::string::npos; at = file.find("<g ", at + 1)) ++groups;
  EXPECT_EQ(groups, 3u);
  EXPECT_EQ(test::find_xml_fault(svg_file("none", {}, 2, ChartWidth::Phone)), "");
  EXPECT_THROW(svg_file("t", {"text"}, 2, ChartWidth::Wide), Error);
  EXPECT_THROW(svg_file("t", {drawing}, 0, ChartWidth::Wide), Error);
}

TEST(XmlCheck, finds_faults) {
  EXPECT_EQ(test::find_xml_fault("<a b=\"1\"><c/>x &amp; y</a>"), "");
  for (const char* bad : {"<a><b></a></b>", "<a>", "<a b=1/>", "<a b=\"1\" b=\"2\"/>", "<a>&</a>",
                          "<a/><b/>", "<a>< </a>"}) {
    EXPECT_NE(test::find_xml_fault(bad), "") << bad;
  }
}

}  // namespace
}  // namespace hone::report
