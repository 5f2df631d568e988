// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/layer_plots.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/names.h"
#include "hone/measure/pareto.h"
#include "hone/report/bundle.h"

namespace hone::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> kFiles = {"landscape.svg", "pareto.svg",  "layers.csv",
                                                    "layers.json",   "report.html", "report.json"};
constexpr std::size_t kMostLines = 6;  // of a line chart
constexpr std::array<const char*, 20> kColumns = {"case",
                                                  "impl",
                                                  "mode",
                                                  "fit",
                                                  "num_terms",
                                                  "low_rank",
                                                  "rank",
                                                  "trainable_count",
                                                  "stored_count",
                                                  "stored_bytes",
                                                  "flops",
                                                  "break_even",
                                                  "past_break_even",
                                                  "rel_error",
                                                  "weight_bytes",
                                                  "peak_memory_bytes",
                                                  "memory_predicted_bytes",
                                                  "median_ms",
                                                  "p10_ms",
                                                  "p90_ms"};

using Rows = std::vector<Json>;

bool is_dense(const Json& row) { return row.at("rank").is_null(); }
bool is_ours(const Json& row) { return !is_dense(row) && row.at("mode") != "bmm"; }

// The timed rows of each case, in order.
std::vector<std::pair<std::string, Rows>> timed_cases(const Json& report) {
  std::vector<std::pair<std::string, Rows>> cases;
  for (const Json& row : report.at("rows")) {
    if (!row.contains("median_ms") || !row.contains("mode")) continue;
    const std::string name = row.at("case");
    if (cases.empty() || cases.back().first != name) cases.push_back({name, {}});
    cases.back().second.push_back(row);
  }
  return cases;
}

report::Figure time_of(const Json& row) {
  report::Figure figure;
  figure.value = row.at("median_ms");
  figure.unit = "ms";
  figure.n = row.at("n");
  figure.p10 = row.at("p10_ms").get<double>();
  figure.p90 = row.at("p90_ms").get<double>();
  return figure;
}

report::Figure figure_of(double value, const char* unit) {
  report::Figure figure;
  figure.value = value;
  figure.unit = unit;
  return figure;
}

std::string label_of(const Json& row) {
  if (row.at("num_terms").is_null()) return row.at("impl");
  return concat(row.at("num_terms").get<Index>(), "x", row.at("low_rank").get<Index>());
}

const Json* fastest_dense(const Rows& rows) {
  const Json* best = nullptr;
  for (const Json& row : rows) {
    if (!is_dense(row)) continue;
    if (best == nullptr || row.at("median_ms") < best->at("median_ms")) best = &row;
  }
  return best;
}

// A value of the layers against their numbers. The point is at the stored ones, the stroke at the
// trainable ones.
report::ScatterChart against_numbers(const Rows& rows, const std::string& title,
                                     const std::string& y_label, bool is_time) {
  const Json& dense = *fastest_dense(rows);
  const auto y_of = [&](const Json& row) {
    return is_time ? time_of(row)
                   : figure_of(row.at("peak_memory_bytes").get<double>() * 1e-6, "MB");
  };
  report::ScatterChart chart;
  chart.title = title;
  chart.note =
      "The circle is at the numbers that a file with the signs stores, the stroke joined "
      "to it at those that are trained.";
  chart.x_label = "numbers, millions";
  chart.y_label = y_label;
  chart.log_x = chart.log_y = true;
  chart.x_reference = {"break-even", dense.at("stored_count").get<double>() * 1e-6};
  chart.y_reference = {"dense", y_of(dense).value};
  for (const Json& row : rows) {
    if (!is_ours(row)) continue;
    chart.points.push_back({.name = label_of(row),
                            .x = figure_of(row.at("stored_count").get<double>() * 1e-6, "million"),
                            .y = y_of(row),
                            .also_x = row.at("trainable_count").get<double>() * 1e-6});
  }
  return chart;
}

// The times of sketched layers against one of terms and low rank, a line for each of the other.
report::LineChart time_against(const Rows& rows, const char* along, const char* across,
                               const char* title) {
  std::map<Index, std::map<Index, double>> lines;
  for (const Json& row : rows) {
    if (row.at("mode") != "sketched") continue;
    lines[row.at(across).get<Index>()][row.at(along).get<Index>()] = row.at("median_ms");
  }
  report::LineChart chart;
  chart.title = title;
  chart.x_label = along;
  chart.y_label = "ms";
  chart.log_y = true;
  for (const auto& [of, points] : lines) {
    if (chart.series.size() == kMostLines) {
      chart.note = concat("Only the first ", kMostLines, " of ", lines.size(), " lines.");
      break;
    }
    report::Series series{concat(of), {}};
    for (const auto& [x, y] : points) series.points.push_back({static_cast<double>(x), y});
    chart.series.push_back(std::move(series));
  }
  chart.references = {{"dense", fastest_dense(rows)->at("median_ms").get<double>()}};
  return chart;
}

report::ScatterChart error_against_time(const Rows& rows, const std::string& name) {
  report::ScatterChart chart;
  chart.title = "Error against time, " + name;
  chart.note =
      "Error of the fit to a seeded Gaussian weight, whose spectrum is the hardest to "
      "approximate. The joined layers are those that no other one beats in both.";
  chart.x_label = "ms";
  chart.y_label = "relative error";
  chart.log_x = true;
  std::vector<std::vector<measure::Objective>> candidates;
  for (const Json& row : rows) {
    if (row.at("mode") == "bmm") continue;
    const double error = row.at("rel_error"), ms = row.at("median_ms");
    candidates.push_back({{ms, ms, ms}, {error, error, error}});
    chart.points.push_back({.name = label_of(row), .x = time_of(row), .y = figure_of(error, "")});
  }
  for (const Index i : measure::pareto_front(candidates)) {
    chart.points[static_cast<std::size_t>(i)].on_front = true;
  }
  return chart;
}

std::string csv_cell(const Json& row, const char* key) {
  if (!row.contains(key) || row.at(key).is_null()) return "";
  return row.at(key).is_string() ? row.at(key).get<std::string>() : row.at(key).dump();
}

// No cell has a comma or a quote: names are made of the options' numbers.
std::string csv_of(const Json& report) {
  std::string text;
  for (const char* column : kColumns) text += concat(column, ",");
  text += "against,ratio,ratio_low,ratio_high\n";
  for (const Json& row : report.at("rows")) {
    if (!row.contains("mode")) continue;
    for (const char* column : kColumns) text += csv_cell(row, column) + ",";
    const Json ratio = row.value("ratio", Json::object());
    text += csv_cell(ratio, "against") + "," + csv_cell(ratio, "ratio") + ",";
    const bool has_interval = ratio.contains("ci");
    text += has_interval ? concat(ratio.at("ci").at(0).dump(), ",", ratio.at("ci").at(1).dump())
                         : std::string(",");
    text += "\n";
  }
  return text;
}

report::Table table_of(const Rows& rows) {
  report::Table table;
  table.title = "Layers";
  table.note = "Ratios are over the faster dense layer: above 1, the layer is faster.";
  table.columns = {"layer", "time", "ratio", "error", "trained", "stored", "of break-even", "peak"};
  for (const Json& row : rows) {
    report::TableCell ratio = std::string("–"), break_even = std::string("–");
    if (row.contains("ratio")) {
      report::Figure figure = figure_of(row.at("ratio").at("ratio"), "");
      if (row.at("ratio").contains("ci")) {
        figure.ci = {row.at("ratio").at("ci").at(0).get<double>(),
                     row.at("ratio").at("ci").at(1).get<double>()};
      }
      ratio = figure;
    }
    if (!row.at("break_even").is_null()) break_even = figure_of(row.at("break_even"), "");
    table.rows.push_back(
        {row.at("impl").get<std::string>(), time_of(row), ratio, figure_of(row.at("rel_error"), ""),
         figure_of(row.at("trainable_count"), ""), figure_of(row.at("stored_count"), ""),
         break_even, figure_of(row.at("peak_memory_bytes").get<double>() * 1e-6, "MB")});
  }
  return table;
}

}  // namespace

void check_plots_folder(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) return;
  HONE_REQUIRE(fs::is_directory(status), folder.string(),
               "The plots need a folder, but this is a file.");
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    HONE_REQUIRE(std::ranges::find(kFiles, name) != kFiles.end() && entry.is_regular_file(),
                 folder.string(),
                 concat("The folder holds ", quote_name(name),
                        ", which is not part of the plots, so it is not replaced."));
  }
  if (!error) return;
  fail(ErrorCategory::Io, folder.string(), concat("Could not read the folder: ", error.message()));
}

void write_layer_plots(const Json& report, const fs::path& folder) {
  report::Report page;
  page.title = "Factored layers";
  page.subtitle =
      "Times, memory and errors of factored layers beside dense ones, interleaved in "
      "one run.";
  page.footer = "hone bench layers";
  std::vector<std::string> landscape, pareto;
  const auto add_panel = [](const auto& chart, std::vector<std::string>& panels,
                            report::Section& section) {
    panels.push_back(draw(chart, report::ChartWidth::Wide));
    section.blocks.push_back(chart);
  };
  for (const auto& [name, rows] : timed_cases(report)) {
    report::Section section{.heading = name, .lead = {}, .blocks = {}};
    add_panel(against_numbers(rows, "Time against numbers, " + name, "ms", true), landscape,
              section);
    add_panel(against_numbers(rows, "Memory against numbers, " + name, "peak, MB", false),
              landscape, section);
    add_panel(time_against(rows, "num_terms", "low_rank", "Time against terms, by low rank"),
              landscape, section);
    add_panel(time_against(rows, "low_rank", "num_terms", "Time against low rank, by terms"),
              landscape, section);
    add_panel(error_against_time(rows, name), pareto, section);
    section.blocks.push_back(table_of(rows));
    page.sections.push_back(std::move(section));
  }
  page.extra["bench"] = report;
  AtomicFolder out(folder, check_plots_folder);
  const fs::path& staging = out.staging();
  constexpr auto kWide = report::ChartWidth::Wide;
  write_text_file(staging / "landscape.svg",
                  report::svg_file("Time and memory of layers", landscape, 2, kWide));
  write_text_file(staging / "pareto.svg",
                  report::svg_file("Error and time of layers", pareto, 2, kWide));
  write_text_file(staging / "layers.csv", csv_of(report));
  write_json_file(staging / "layers.json", report);
  report::write_report(page, staging);
  out.commit();
}

}  // namespace hone::bench
