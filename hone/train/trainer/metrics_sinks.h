// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hone/train/trainer/append_file.h"
#include "hone/train/trainer/metrics_log.h"

namespace hone::trainer {

// What rows can be written to beside metrics.csv.
enum class MetricsFormat {
  JsonLines,    // metrics.jsonl: an object per row, keys as in the CSV, absent where that is empty
  TensorBoard,  // tensorboard/events.out.tfevents.0.hone
};

// "jsonl", "tensorboard"; "csv" adds nothing. Error{InvalidArgument} on another name.
std::vector<MetricsFormat> parse_metrics_formats(std::span<const std::string> names);

class MetricsSinks {
 public:
  // Files below `folder` that hold `kept`, the rows of steps 1 … n, and nothing after them. The
  // event file keeps what it has of them, for their times; what it lacks is given the present one.
  MetricsSinks(const std::filesystem::path& folder, std::span<const MetricsFormat> formats,
               std::span<const MetricsRow> kept);

  void add(const MetricsRow& row);

  // A line.
  static std::string to_json_line(const MetricsRow& row);

 private:
  std::unique_ptr<AppendFile> json_lines_, events_;
};

}  // namespace hone::trainer
