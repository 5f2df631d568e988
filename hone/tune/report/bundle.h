// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "hone/core/json_io.h"
#include "hone/tune/report/chart.h"
#include "hone/tune/report/figure.h"

namespace hone::tune {

// A report as data: sections of blocks. Callers fill it; render_html() and to_json() show the same
// numbers. Every text is plain text and is escaped where it is written.

struct Prose {
  std::string text;  // paragraphs are separated by an empty line
};

using TableCell = std::variant<std::string, Figure>;
struct Table {
  std::string title, note;
  std::vector<std::string> columns;
  std::vector<std::vector<TableCell>> rows;  // each as long as columns
  int highlighted_row = -1;
};

// Text that a model wrote. `prompt` is its given beginning.
struct Sample {
  std::string name, prompt, text;
  std::string note;  // "41 tokens, 1 234 tokens/s"
};
struct Samples {
  std::string title;
  std::vector<Sample> samples;
};

// Name and value, in order: "CPU", "…".
struct MachineCard {
  std::vector<std::pair<std::string, std::string>> facts;
};

using Block = std::variant<Prose, Table, Samples, MachineCard, LineChart, ScatterChart, BarChart>;

struct Section {
  std::string heading;
  std::string lead;  // one or two sentences below the heading; may be empty
  std::vector<Block> blocks;
};

// The figures at the top of the page.
struct Headline {
  std::string name;
  Figure figure;
  std::string note;
};

struct Report {
  std::string title, subtitle;
  std::vector<Headline> headlines;
  std::vector<Section> sections;
  std::string footer;  // command, version, time
  // Objects that report.json carries beside the sections: "runs", "passes", "quality", "front", …
  Json extra = Json::object();
};

// One HTML file that fetches nothing: inline style, SVG, script and the JSON document. Light and
// dark follow the reader's setting. Error{InvalidArgument} when a table row has not one cell per
// column.
std::string render_html(const Report& report);

// {"schema": "hone.report/1", title, machine, headlines[], sections[], …extra}; every figure as
// {value, unit, n, p10, p90, ci, label}.
Json to_json(const Report& report);

// Writes report.html, report.json and, where the report has a machine card, machine.json into
// `folder` (made when absent). Each appears whole or not at all.
void write_report(const Report& report, const std::filesystem::path& folder);

}  // namespace hone::tune
