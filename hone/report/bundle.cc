// SPDX-License-Identifier: Apache-2.0
#include "hone/report/bundle.h"

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"

namespace hone::report {
namespace {

Json block_json(const Prose& prose) {
  return {{"kind", "prose"}, {"text", clean_text(prose.text)}};
}

Json cell_json(const TableCell& cell) {
  if (const auto* figure = std::get_if<Figure>(&cell)) return to_json(*figure);
  return clean_text(std::get<std::string>(cell));
}

Json block_json(const Table& table) {
  Json json = {{"kind", "table"}, {"title", table.title}, {"columns", table.columns}};
  json["rows"] = Json::array();
  for (const auto& row : table.rows) {
    Json cells = Json::array();
    for (const TableCell& cell : row) cells.push_back(cell_json(cell));
    json["rows"].push_back(std::move(cells));
  }
  return json;
}

Json block_json(const Samples& samples) {
  Json json = {{"kind", "samples"}, {"title", samples.title}, {"samples", Json::array()}};
  for (const Sample& sample : samples.samples) {
    json["samples"].push_back({{"name", sample.name},
                               {"prompt", clean_text(sample.prompt)},
                               {"text", clean_text(sample.text)},
                               {"note", sample.note}});
  }
  return json;
}

Json facts_json(const MachineCard& card) {
  Json facts = Json::object();
  for (const auto& [name, value] : card.facts) facts[name] = clean_text(value);
  return facts;
}

Json block_json(const MachineCard& card) {
  return {{"kind", "machine"}, {"facts", facts_json(card)}};
}

Json block_json(const LineChart& chart) { return to_json(chart); }
Json block_json(const ScatterChart& chart) { return to_json(chart); }
Json block_json(const BarChart& chart) { return to_json(chart); }
Json block_json(const Heatmap& map) { return to_json(map); }
Json block_json(const PointCloud& cloud) { return to_json(cloud); }
Json block_json(const Pictures& pictures) { return to_json(pictures); }

const MachineCard* find_machine(const Report& report) {
  for (const Section& section : report.sections) {
    for (const Block& block : section.blocks) {
      if (const auto* card = std::get_if<MachineCard>(&block)) return card;
    }
  }
  return nullptr;
}

}  // namespace

Json to_json(const Report& report) {
  Json json;
  json["schema"] = "hone.report/1";
  json["title"] = report.title;
  const MachineCard* machine = find_machine(report);
  json["machine"] = machine != nullptr ? facts_json(*machine) : Json();
  json["headlines"] = Json::array();
  for (const Headline& headline : report.headlines) {
    json["headlines"].push_back(
        {{"name", headline.name}, {"figure", to_json(headline.figure)}, {"note", headline.note}});
  }
  json["sections"] = Json::array();
  for (const Section& section : report.sections) {
    Json blocks = Json::array();
    for (const Block& block : section.blocks) {
      blocks.push_back(std::visit([](const auto& part) { return block_json(part); }, block));
    }
    json["sections"].push_back({{"heading", section.heading}, {"blocks", std::move(blocks)}});
  }
  json["footer"] = report.footer;
  for (const auto& [key, value] : report.extra.items()) {
    HONE_REQUIRE(!json.contains(key), "report",
                 concat("The extra object \"", key, "\" has the name of another part."));
    json[key] = value;
  }
  return json;
}

void write_report(const Report& report, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    fail(ErrorCategory::Io, folder.string(),
         concat("Could not create the folder: ", error.message()));
  const std::string html = render_html(report);
  if (const MachineCard* machine = find_machine(report)) {
    write_json_file(folder / "machine.json", facts_json(*machine));
  }
  write_json_file(folder / "report.json", to_json(report));
  write_text_file(folder / "report.html", html);
}

}  // namespace hone::report
