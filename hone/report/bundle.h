// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/report/chart.h"
#include "hone/report/figure.h"
#include "hone/report/pictures.h"

namespace hone::report {

// A report as data: sections of blocks. Callers fill it; render_html() and to_json() show the same
// numbers. All texts are plain text and are escaped on output.

struct Prose {
  std::string text;  // paragraphs are separated by an empty line
};

using TableCell = std::variant<std::string, Figure>;
struct Table {
  std::string title, note;
  std::vector<std::string> columns;
  std::vector<std::vector<TableCell>> rows;  // each with one cell per column
  int highlighted_row = -1;
};

// Text that a model generated. `prompt` is its given beginning.
struct Sample {
  std::string name, prompt, text;
  std::string note;  // "41 tokens, 1 234 tokens/s"
};
struct Samples {
  std::string title;
  std::vector<Sample> samples;
};

// Names and values in order: "CPU", "…".
struct MachineCard {
  std::vector<std::pair<std::string, std::string>> facts;
};

using Block = std::variant<Prose, Table, Samples, MachineCard, LineChart, ScatterChart, BarChart,
                           Heatmap, PointCloud, Pictures>;

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
  // Objects that report.json has in addition to the sections: "runs", "passes", "quality", "front",
  // …
  Json extra = Json::object();
};

// Renders one self-contained HTML file with inline style, SVG, script and the JSON document. The
// light or dark theme follows the reader's setting. Throws Error{InvalidArgument} unless every
// table row has one cell per column.
std::string render_html(const Report& report);

// {"schema": "hone.report/1", title, machine, headlines[], sections[], …extra}, with each figure as
// {value, unit, n, p10, p90, ci, label}.
Json to_json(const Report& report);

// Writes report.html, report.json and, if the report has a machine card, machine.json into
// `folder`, which is created if necessary. Each file is written atomically.
void write_report(const Report& report, const std::filesystem::path& folder);

}  // namespace hone::report
