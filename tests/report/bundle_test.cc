// SPDX-License-Identifier: Apache-2.0
#include "hone/report/bundle.h"

#include <gtest/gtest.h>

#include <limits>
#include <regex>
#include <set>

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "tests/report/report_sample.h"
#include "tests/report/report_xml.h"
#include "tests/support/test_data.h"

namespace hone::report {
namespace {

std::vector<std::string> svgs_of(const std::string& html) {
  std::vector<std::string> found;
  for (auto begin = html.find("<svg"); begin != std::string::npos;
       begin = html.find("<svg", begin + 1)) {
    found.push_back(html.substr(begin, html.find("</svg>", begin) + 6 - begin));
  }
  return found;
}

std::string embedded_json(const std::string& html) {
  const std::string open = "id=\"report-data\">";
  const auto begin = html.find(open) + open.size();
  return html.substr(begin, html.find("</script>", begin) - begin);
}

void collect_figures(const Json& json, std::multiset<double>& values) {
  if (json.is_object() && json.contains("value") && json.contains("label")) {
    for (const char* field : {"value", "unit", "n", "p10", "p90", "ci", "label"}) {
      EXPECT_TRUE(json.contains(field)) << field;
    }
    if (json["value"].is_number()) values.insert(json["value"].get<double>());
  }
  if (!json.is_structured()) return;
  for (const auto& part : json) collect_figures(part, values);
}

Report report_with(Block block) {
  Report report;
  report.title = "t";
  report.sections = {{"s", "", {std::move(block)}}};
  return report;
}

TEST(ReportHtml, fetches_nothing) {
  const std::string html = render_html(test::sample_report());
  for (const char* pattern : {"https?:", "\\bsrc\\s*=", "@import", "url\\(", "<link", "//cdn"}) {
    EXPECT_FALSE(std::regex_search(html, std::regex(pattern))) << pattern;
  }
  const std::regex href("href=\"([^\"]*)\"");
  for (std::sregex_iterator link(html.begin(), html.end(), href), end; link != end; ++link) {
    EXPECT_EQ((*link)[1].str()[0], '#');
  }
}

TEST(ReportHtml, every_drawing_is_well_formed_and_described) {
  const auto drawings = svgs_of(render_html(test::sample_report()));
  EXPECT_EQ(drawings.size(), 6u);  // three charts, two widths
  for (const std::string& svg : drawings) {
    EXPECT_EQ(test::find_xml_fault(svg), "") << svg.substr(0, 200);
    EXPECT_NE(svg.find("<title>"), std::string::npos);
    EXPECT_NE(svg.find("viewBox="), std::string::npos);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
  }
}

TEST(ReportHtml, every_number_of_a_table_is_in_the_json) {
  const Report report = test::sample_report();
  std::multiset<double> values;
  const Json json = to_json(report);
  EXPECT_EQ(json["schema"], "hone.report/1");
  collect_figures(json, values);
  const std::string html = render_html(report);
  int cells = 0;
  const std::regex figure_cell("<td data-v=\"([^\"]+)\"");
  for (std::sregex_iterator cell(html.begin(), html.end(), figure_cell), end; cell != end; ++cell) {
    ++cells;
    EXPECT_TRUE(values.contains(std::stod((*cell)[1].str()))) << (*cell)[1];
  }
  EXPECT_EQ(cells, 35);
  EXPECT_EQ(parse_json(embedded_json(html), "embedded"), json);
}

TEST(ReportHtml, hostile_text_stays_text) {
  const std::string hostile =
      "</script><script>alert(1)</script> <b onload=\"x\"> & ' \x01 \xff\xfe \xED\xA0\x80 ok";
  Report report = report_with(Samples{hostile, {{hostile, hostile, hostile, hostile}}});
  report.title = report.subtitle = report.footer = hostile;
  LineChart chart;
  chart.title = chart.note = chart.x_label = chart.y_label = hostile;
  chart.series = {{hostile, {{0, 1}, {1, 2}}}};
  report.sections[0].blocks.emplace_back(chart);
  Table table;
  table.columns = {hostile};
  table.rows = {{hostile}};
  report.sections[0].blocks.emplace_back(table);
  const std::string html = render_html(report);
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_EQ(html.find("<b onload"), std::string::npos);
  EXPECT_EQ(html.find('\x01'), std::string::npos);
  EXPECT_EQ(html.find('\xff'), std::string::npos);
  for (const std::string& svg : svgs_of(html)) EXPECT_EQ(test::find_xml_fault(svg), "");
  const Json json = parse_json(embedded_json(html), "embedded");
  EXPECT_NE(json["title"].get<std::string>().find("</script>"), std::string::npos);
}

TEST(ReportHtml, absent_numbers_are_shown_as_absent) {
  Figure absent;
  absent.value = std::numeric_limits<double>::quiet_NaN();
  absent.label = FigureLabel::Modeled;
  Table table;
  table.columns = {"name", "energy"};
  table.rows = {{std::string("a"), absent}};
  const Report report = report_with(table);
  EXPECT_NE(render_html(report).find("<td data-v=\"\">–"), std::string::npos);
  const Json cell = to_json(report)["sections"][0]["blocks"][0]["rows"][0][1];
  EXPECT_TRUE(cell["value"].is_null());
  EXPECT_EQ(cell["label"], "modeled");
}

TEST(ReportHtml, refuses_a_ragged_table_and_a_clash_of_names) {
  Table table;
  table.columns = {"a", "b"};
  table.rows = {{std::string("x")}};
  EXPECT_THROW(render_html(report_with(table)), Error);
  Report report = report_with(Prose{"p"});
  report.extra["schema"] = "other";
  EXPECT_THROW(to_json(report), Error);
}

TEST(ReportHtml, charts_survive_empty_and_degenerate_data) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  LineChart line;
  line.log_x = line.log_y = true;
  line.series = {
      {"empty", {}}, {"one", {{3, 3}}}, {"bad", {{nan, 1}, {1, nan}}}, {"zero", {{0, 0}}}};
  ScatterChart scatter;
  scatter.log_x = true;
  scatter.size_label = "speed";
  scatter.points = {{"a", test::figure(1, ""), test::figure(1, ""), 0, true},
                    {"b", test::figure(nan, ""), test::figure(1, ""), nan, true}};
  BarChart bars;
  bars.groups = {
      {"", {{"zero", test::figure(0, "ms"), true}, {"nan", test::figure(nan, ""), false}}}};
  for (const ChartWidth width : {ChartWidth::Wide, ChartWidth::Phone}) {
    for (const std::string& svg :
         {draw(line, width), draw(LineChart{}, width), draw(scatter, width),
          draw(ScatterChart{}, width), draw(bars, width), draw(BarChart{}, width)}) {
      EXPECT_EQ(test::find_xml_fault(svg), "");
      EXPECT_FALSE(std::regex_search(svg, std::regex("=\"-?(nan|inf)"))) << svg;
    }
  }
  for (const char* name : {"fifth", "sixth"}) line.series.push_back({name, {}});
  EXPECT_NO_THROW(draw(line, ChartWidth::Wide));
  line.series.push_back({"seventh", {}});
  EXPECT_THROW(draw(line, ChartWidth::Wide), Error);
}

TEST(ReportBundle, writes_its_files_whole) {
  const hone::test::TemporaryFolder folder;
  const auto out = folder.path() / "new" / "report";
  write_report(test::sample_report(), out);
  write_report(test::sample_report(), out);  // again, over the first
  EXPECT_EQ(read_text_file(out / "report.html"), render_html(test::sample_report()));
  EXPECT_EQ(read_json_file(out / "report.json"), to_json(test::sample_report()));
  EXPECT_EQ(read_json_file(out / "machine.json")["Instruction set"], "avx512vnni");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out), {}), 3);
}

}  // namespace
}  // namespace hone::report
