// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/metrics_sinks.h"

#include <chrono>

#include "hone/core/check.h"
#include "hone/core/file_io.h"
#include "hone/core/json_io.h"
#include "hone/train/trainer/event_file.h"

namespace hone::trainer {
namespace {

namespace fs = std::filesystem;

double wall_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::string events_up_to(const fs::path& path, std::span<const MetricsRow> rows) {
  const std::string earlier = !rows.empty() && fs::exists(path) ? read_text_file(path) : "";
  const KeptEvents kept = keep_events(earlier, static_cast<Index>(rows.size()));
  std::string out(kept.bytes);
  if (out.empty()) out = first_event(wall_time());
  for (const MetricsRow& row : rows.subspan(static_cast<std::size_t>(kept.last))) {
    out += event_of(row, wall_time());
  }
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

MetricsSinks::MetricsSinks(const fs::path& folder, std::span<const MetricsFormat> formats,
                           std::span<const MetricsRow> kept) {
  for (const MetricsFormat format : formats) {
    if (format == MetricsFormat::JsonLines) {
      std::string lines;
      for (const MetricsRow& row : kept) lines += to_json_line(row);
      json_lines_ = std::make_unique<AppendFile>(folder / "metrics.jsonl", lines);
    } else {
      fs::create_directories(folder / "tensorboard");
      const fs::path path = folder / "tensorboard" / "events.out.tfevents.0.hone";
      events_ = std::make_unique<AppendFile>(path, events_up_to(path, kept));
    }
  }
}

void MetricsSinks::add(const MetricsRow& row) {
  if (json_lines_) json_lines_->append(to_json_line(row));
  if (events_) events_->append(event_of(row, wall_time()));
}

std::string MetricsSinks::to_json_line(const MetricsRow& row) {
  nlohmann::ordered_json line = {{"step", row.step}};
  for (const MetricsColumn& column : metrics_columns()) {
    if (const auto value = column.of(row)) line[std::string(column.name)] = *value;
  }
  return line.dump() + '\n';
}

}  // namespace hone::trainer
