// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/metrics_sinks.h"

#include <chrono>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/train/trainer/event_file.h"

namespace hone::trainer {
namespace {

namespace fs = std::filesystem;

double wall_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::string event_now(const MetricsRow& row) { return event_of(row, wall_time()); }

std::string events_up_to(const fs::path& path, std::span<const MetricsRow> rows) {
  const std::string earlier = !rows.empty() && fs::exists(path) ? read_text_file(path) : "";
  const KeptEvents kept = keep_events(earlier, rows);
  std::string out(kept.bytes);
  if (out.empty()) out = first_event(wall_time());
  for (const MetricsRow& row : rows.subspan(kept.rows)) out += event_now(row);
  return out;
}

std::string lines_of(std::span<const MetricsRow> rows, std::string (*line_of)(const MetricsRow&)) {
  std::string out;
  for (const MetricsRow& row : rows) out += line_of(row);
  return out;
}

}  // namespace

std::vector<MetricsFormat> parse_metrics_formats(std::span<const std::string> names) {
  std::vector<MetricsFormat> out;
  for (const std::string& name : names) {
    if (name == "jsonl") {
      out.push_back(MetricsFormat::JsonLines);
    } else if (name == "tensorboard") {
      out.push_back(MetricsFormat::TensorBoard);
    } else if (name != "csv") {
      fail_argument("trainer.metrics", "csv, jsonl or tensorboard", name);
    }
  }
  return out;
}

std::array<fs::path, 3> metrics_files(const fs::path& folder) {
  return {folder / "metrics.csv", folder / "metrics.jsonl",
          folder / "tensorboard" / "events.out.tfevents.0.hone"};
}

MetricsSinks::MetricsSinks(const fs::path& folder, std::span<const MetricsFormat> formats,
                           std::span<const MetricsRow> kept) {
  const auto add = [&](const fs::path& path, const std::string& begin,
                       std::string (*text_of)(const MetricsRow&)) {
    sinks_.push_back({std::make_unique<AppendFile>(path, begin), text_of});
  };
  const auto [csv, json_lines, events] = metrics_files(folder);
  add(csv, metrics_header() + lines_of(kept, to_csv_line), to_csv_line);
  for (const MetricsFormat format : formats) {
    if (format == MetricsFormat::JsonLines) {
      add(json_lines, lines_of(kept, to_json_line), to_json_line);
    } else {
      fs::create_directories(events.parent_path());
      add(events, events_up_to(events, kept), event_now);
    }
  }
}

void MetricsSinks::add(const MetricsRow& row) {
  for (const Sink& sink : sinks_) sink.file->append(sink.text_of(row));
}

void MetricsSinks::replace_last(const MetricsRow& row) {
  for (const Sink& sink : sinks_) sink.file->replace_last(sink.text_of(row));
}

void MetricsSinks::sync() {
  for (const Sink& sink : sinks_) sink.file->sync();
}

std::string MetricsSinks::to_json_line(const MetricsRow& row) {
  nlohmann::ordered_json line = {{"step", row.step}};
  for (const MetricsColumn& column : metrics_columns()) {
    if (const auto value = column.of(row)) line[std::string(column.name)] = *value;
  }
  return line.dump() + '\n';
}

}  // namespace hone::trainer
