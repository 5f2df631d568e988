// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/metrics_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "hone/core/check.h"
#include "hone/core/file_io.h"
#include "hone/core/log.h"

namespace hone::trainer {
namespace {

constexpr std::array<MetricsColumn, 8> kColumns = {
    {{"loss", "train/loss", &MetricsRow::loss},
     {"lr", "train/lr", &MetricsRow::lr},
     {"grad_norm", "train/grad_norm", &MetricsRow::grad_norm},
     {"tokens_per_s", "train/tokens_per_s", &MetricsRow::tokens_per_s},
     {"val_loss", "validation/loss", &MetricsRow::val_loss},
     {"val_bits_per_byte", "validation/bits_per_byte", &MetricsRow::val_bits_per_byte},
     {"loss_scale", "train/loss_scale", &MetricsRow::loss_scale},
     {"val_accuracy", "validation/accuracy", &MetricsRow::val_accuracy}}};

std::string header() {
  std::string line = "step";
  for (const MetricsColumn& column : kColumns) line += concat(',', column.name);
  return line;
}

std::string exact(double value) {
  std::array<char, 40> text;
  const int length = std::snprintf(text.data(), text.size(), "%.17g", value);
  return {text.data(), static_cast<std::size_t>(length)};
}

// The header and the rows up to step `steps`, from step 1 or where a log was begun again. A last
// line without its end is a torn write.
std::string keep_rows(const std::string& text, Index steps, const std::string& file) {
  std::size_t end = text.find('\n');
  if (end == std::string::npos || std::string_view(text).substr(0, end) != header()) {
    fail_corrupt(file, concat("the header '", header(), "'"), "another first line");
  }
  Index step = 1;
  std::from_chars(text.data() + end + 1, text.data() + text.size(), step);
  for (step = std::clamp(step, Index{1}, steps + 1); step <= steps; ++step) {
    const std::size_t begin = end + 1;
    end = text.find('\n', begin);
    Index found = 0;
    if (end != std::string::npos) {
      std::from_chars(text.data() + begin, text.data() + end, found);
    }
    if (found != step) fail_corrupt(file, concat("a row of step ", step), "none");
  }
  return text.substr(0, end + 1);
}

// A run goes on without its earlier rows where somebody has removed them.
std::string earlier_rows(const std::filesystem::path& path, std::optional<Index> keep_steps) {
  std::error_code error;
  if (!keep_steps) return concat(header(), '\n');
  if (std::filesystem::exists(path, error) && std::filesystem::file_size(path, error) > 0) {
    return keep_rows(read_text_file(path), *keep_steps, path.string());
  }
  log_warning(concat(path.string(), " is gone: it begins again after step ", *keep_steps));
  return concat(header(), '\n');
}

}  // namespace

std::optional<double> MetricsColumn::of(const MetricsRow& row) const {
  return std::visit([&](auto member) -> std::optional<double> { return row.*member; }, field);
}

std::span<const MetricsColumn> metrics_columns() { return kColumns; }

std::vector<MetricsRow> read_metrics(const std::filesystem::path& path) {
  const std::string text = read_text_file(path), file = path.string();
  std::vector<MetricsRow> rows;
  std::size_t begin = keep_rows(text, 0, file).size();
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const char* at = text.data() + begin;
    const char* const last = text.data() + end;
    MetricsRow row;
    at = std::from_chars(at, last, row.step).ptr;
    bool whole = true;
    for (const MetricsColumn& column : kColumns) {
      whole = whole && at != last && *at++ == ',';
      double value = 0;
      const auto parsed = std::from_chars(at, last, value);
      const bool given = parsed.ec == std::errc();
      whole = whole && (given || column.optional());
      at = parsed.ptr;
      if (!given) continue;
      std::visit([&](auto field) { row.*field = value; }, column.field);
    }
    if (!whole || at != last) {
      fail_corrupt(file, concat(kColumns.size() + 1, " numbers after row ", rows.size()),
                   text.substr(begin, end - begin));
    }
    rows.push_back(row);
  }
  return rows;
}

MetricsLog::MetricsLog(const std::filesystem::path& path, std::optional<Index> keep_steps)
    : file_(path, earlier_rows(path, keep_steps)) {}

void MetricsLog::add(const MetricsRow& row) { file_.append(to_line(row)); }

std::string MetricsLog::to_line(const MetricsRow& row) {
  std::string line = concat(row.step);
  for (const MetricsColumn& column : kColumns) {
    const std::optional<double> value = column.of(row);
    line += concat(',', value ? exact(*value) : std::string());
  }
  return line + '\n';
}

}  // namespace hone::trainer
