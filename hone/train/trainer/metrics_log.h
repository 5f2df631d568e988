// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hone/core/index.h"
#include "hone/train/trainer/append_file.h"

namespace hone::trainer {

// One row per optimiser step.
struct MetricsRow {
  Index step = 0;  // steps done, from 1
  double loss = 0, lr = 0, grad_norm = 0, tokens_per_s = 0;
  std::optional<double> val_loss{}, val_bits_per_byte{};  // empty where nothing was validated
  std::optional<double> loss_scale{};    // in force; empty where losses are not scaled
  std::optional<double> val_accuracy{};  // of classifiers
};

// The columns behind `step`, in their order.
struct MetricsColumn {
  std::string_view name;  // in CSV and JSON lines
  std::string_view tag;   // in event files
  std::variant<double MetricsRow::*, std::optional<double> MetricsRow::*> field;

  bool optional() const { return field.index() == 1; }
  std::optional<double> of(const MetricsRow& row) const;
};
std::span<const MetricsColumn> metrics_columns();

// metrics.csv: a header line, then rows with numbers in 17 significant digits.
class MetricsLog {
 public:
  // Starts an empty log, or with keep_steps ≥ 0 keeps the rows of steps 1 … keep_steps of the
  // existing one. Error{CorruptFile} when those rows are not there.
  MetricsLog(const std::filesystem::path& path, std::optional<Index> keep_steps);

  void add(const MetricsRow& row);

  static std::string to_line(const MetricsRow& row);

 private:
  AppendFile file_;
};

// A log read back, for reports and resume. Error{CorruptFile} naming the line.
std::vector<MetricsRow> read_metrics(const std::filesystem::path& path);

}  // namespace hone::trainer
