// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/metrics_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"

namespace hone::trainer {
namespace {

constexpr std::array<MetricsColumn, 22> kColumns = {
    {{"loss", "train/loss", &MetricsRow::loss},
     {"lr", "train/lr", &MetricsRow::lr},
     {"grad_norm", "train/grad_norm", &MetricsRow::grad_norm},
     {"tokens_per_s", "train/tokens_per_s", &MetricsRow::tokens_per_s},
     {"val_loss", "validation/loss", &MetricsRow::val_loss},
     {"val_bits_per_byte", "validation/bits_per_byte", &MetricsRow::val_bits_per_byte},
     {"loss_scale", "train/loss_scale", &MetricsRow::loss_scale},
     {"val_accuracy", "validation/accuracy", &MetricsRow::val_accuracy},
     {"found_inf", "train/found_inf", &MetricsRow::found_inf},
     {"skipped", "train/skipped", &MetricsRow::skipped},
     {"growth_tracker", "train/growth_tracker", &MetricsRow::growth_tracker},
     {"ce", "train/ce", &MetricsRow::ce},
     {"aux", "train/aux", &MetricsRow::aux},
     {"pac", "train/pac", &MetricsRow::pac},
     {"soc", "train/soc", &MetricsRow::soc},
     {"active_share", "train/active_share", &MetricsRow::active_share},
     {"empty_share", "train/empty_share", &MetricsRow::empty_share},
     {"forward_s", "time/forward_s", &MetricsRow::forward_s},
     {"backward_s", "time/backward_s", &MetricsRow::backward_s},
     {"optimizer_s", "time/optimizer_s", &MetricsRow::optimizer_s},
     {"memory_mb", "memory/mb", &MetricsRow::memory_mb},
     {"soft", "train/soft", &MetricsRow::soft}}};

std::string exact(double value) {
  std::array<char, 40> text;
  const int length = std::snprintf(text.data(), text.size(), "%.17g", value);
  return {text.data(), static_cast<std::size_t>(length)};
}

// The columns of a log that begins with `header`, a line without its end; nothing where that is no
// header. Columns are only ever added, at the end.
std::optional<std::span<const MetricsColumn>> columns_of(std::string_view header) {
  std::string known = "step";
  std::size_t count = 0;
  while (known != header && count < kColumns.size()) known += concat(',', kColumns[count++].name);
  const std::span columns = std::span(kColumns).first(count);
  const bool whole = std::none_of(kColumns.begin() + static_cast<Index>(count), kColumns.end(),
                                  [](const MetricsColumn& column) { return !column.optional(); });
  return known == header && whole ? std::optional(columns) : std::nullopt;
}

std::optional<MetricsRow> parse_row(std::string_view line, std::span<const MetricsColumn> columns) {
  const char* at = line.data();
  const char* const last = at + line.size();
  MetricsRow row;
  at = std::from_chars(at, last, row.step).ptr;
  for (const MetricsColumn& column : columns) {
    if (at == last || *at++ != ',') return std::nullopt;
    double value = 0;
    const auto parsed = std::from_chars(at, last, value);
    at = parsed.ptr;
    if (parsed.ec == std::errc()) {
      std::visit([&](auto field) { row.*field = value; }, column.field);
    } else if (!column.optional()) {
      return std::nullopt;
    }
  }
  return at == last ? std::optional(row) : std::nullopt;
}

// Complete lines only; a line without its end is a torn write.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos;) {
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

}  // namespace

std::optional<double> MetricsColumn::of(const MetricsRow& row) const {
  return std::visit([&](auto member) -> std::optional<double> { return row.*member; }, field);
}

std::span<const MetricsColumn> metrics_columns() { return kColumns; }

std::string metrics_header() {
  std::string line = "step";
  for (const MetricsColumn& column : kColumns) line += concat(',', column.name);
  return line + '\n';
}

std::string to_csv_line(const MetricsRow& row) {
  std::string line = concat(row.step);
  for (const MetricsColumn& column : kColumns) {
    const std::optional<double> value = column.of(row);
    line += concat(',', value ? exact(*value) : std::string());
  }
  return line + '\n';
}

std::vector<MetricsRow> read_metrics(const std::filesystem::path& path) {
  const std::string text = read_text_file(path), file = path.string();
  const std::vector<std::string_view> lines = lines_of(text);
  const auto columns = lines.empty() ? std::nullopt : columns_of(lines.front());
  if (!columns) {
    const std::string header = metrics_header();
    fail_corrupt(file, concat("the header '", header.substr(0, header.size() - 1), "'"),
                 "another first line");
  }
  std::vector<MetricsRow> rows;
  for (const std::string_view line : std::span(lines).subspan(1)) {
    const std::optional<MetricsRow> row = parse_row(line, *columns);
    if (!row) {
      fail_corrupt(file, concat(columns->size() + 1, " numbers after row ", rows.size()),
                   std::string(line));
    }
    rows.push_back(*row);
  }
  return rows;
}

std::vector<MetricsRow> kept_metrics(const std::filesystem::path& path, Index steps) {
  std::error_code none;
  const std::string text = std::filesystem::exists(path, none) ? read_text_file(path) : "";
  const std::vector<std::string_view> lines = lines_of(text);
  const auto columns = lines.empty() ? std::nullopt : columns_of(lines.front());
  std::vector<MetricsRow> rows;
  Index last = 0;
  if (columns) {
    for (const std::string_view line : std::span(lines).subspan(1)) {
      const std::optional<MetricsRow> row = parse_row(line, *columns);
      if (!row || row->step <= last || row->step > steps) break;
      last = row->step;
      rows.push_back(*row);
    }
  }
  if (last != steps) {
    log_warning(concat(path.string(), text.empty() ? " is gone" : " is incomplete",
                       ": it has no rows of steps ", last + 1, " to ", steps));
  }
  return rows;
}

}  // namespace hone::trainer
