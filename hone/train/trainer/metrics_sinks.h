// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hone/train/trainer/append_file.h"
#include "hone/train/trainer/metrics_log.h"

namespace hone::trainer {

// The formats in which rows can be written in addition to metrics.csv.
enum class MetricsFormat {
  JsonLines,    // metrics.jsonl: one object per row, keys as in the CSV; empty values are omitted
  TensorBoard,  // tensorboard/events.out.tfevents.0.hone
};

// Accepts "jsonl", "tensorboard", and "csv", which adds nothing. Throws Error{InvalidArgument} for
// other names.
std::vector<MetricsFormat> parse_metrics_formats(std::span<const std::string> names);

// Every file that sinks below `folder` may write.
std::array<std::filesystem::path, 3> metrics_files(const std::filesystem::path& folder);

// metrics.csv and the other files that rows go to.
class MetricsSinks {
 public:
  // Opens the files below `folder` and truncates them to the rows `kept`. The event file keeps its
  // records of these rows with their times; missing ones are written with the current time.
  MetricsSinks(const std::filesystem::path& folder, std::span<const MetricsFormat> formats,
               std::span<const MetricsRow> kept);

  void add(const MetricsRow& row);
  // Rewrites the last row, with more columns filled in.
  void replace_last(const MetricsRow& row);
  // Calls AppendFile::sync() for each file.
  void sync();

  // Returns a row as one line.
  static std::string to_json_line(const MetricsRow& row);

 private:
  struct Sink {
    std::unique_ptr<AppendFile> file;
    std::string (*text_of)(const MetricsRow& row);
  };
  std::vector<Sink> sinks_;
};

}  // namespace hone::trainer
