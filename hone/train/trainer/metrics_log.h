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

namespace hone::trainer {

// One row per optimizer step.
struct MetricsRow {
  Index step = 0;  // steps done, from 1
  double loss = 0, lr = 0, grad_norm = 0, tokens_per_s = 0;
  std::optional<double> val_loss{}, val_bits_per_byte{};  // empty without a validation
  std::optional<double> loss_scale{};    // in effect; empty if losses are not scaled
  std::optional<double> val_accuracy{};  // for classifiers
  // 1 if a gradient was inf or NaN and the step changed nothing, else 0. Empty if such a step would
  // end the run.
  std::optional<double> found_inf{}, skipped{};
  // Steps without overflow since the loss scale changed, this one included; empty without a scale.
  std::optional<double> growth_tracker{};
  // Terms of the loss, for jobs with several terms: cross entropy, supervised contrast or triplets,
  // part contrast, second-order alignment. Also the shares of anchors with an active hinge and
  // without a negative.
  std::optional<double> ce{}, aux{}, pac{}, soc{}, active_share{}, empty_share{};
  // Seconds of the phases of the step. Memory after it in MiB: of the process, or on CUDA what the
  // allocator has reserved at most; empty where the system does not tell.
  std::optional<double> forward_s{}, backward_s{}, optimizer_s{}, memory_mb{};
  // The soft loss of a model that learns from a teacher; its loss on the data is `ce`.
  std::optional<double> soft{};
};

// The columns after `step`, in order.
struct MetricsColumn {
  std::string_view name;  // in CSV and JSON lines
  std::string_view tag;   // in event files
  std::variant<double MetricsRow::*, std::optional<double> MetricsRow::*> field;

  bool optional() const { return field.index() == 1; }
  std::optional<double> of(const MetricsRow& row) const;
};
std::span<const MetricsColumn> metrics_columns();

// metrics.csv: a header line, then rows with numbers in 17 significant digits. In logs from before
// a column existed, that column is read as empty.
std::string metrics_header();
std::string to_csv_line(const MetricsRow& row);

// Reads a log for reports. Throws Error{CorruptFile} that names the line.
std::vector<MetricsRow> read_metrics(const std::filesystem::path& path);

// Returns the rows of its log that a run keeps when it resumes after `steps` steps: the complete
// rows up to that step. Warns if the last of them, or the whole log, are missing.
std::vector<MetricsRow> kept_metrics(const std::filesystem::path& path, Index steps);

}  // namespace hone::trainer
