// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/metrics_log.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "hone/core/check.h"
#include "hone/core/file_io.h"

namespace hone::trainer {
namespace {

constexpr std::string_view kHeader =
    "step,loss,lr,grad_norm,tokens_per_s,val_loss,val_bits_per_byte";

std::string exact(double value) {
  std::array<char, 40> text;
  const int length = std::snprintf(text.data(), text.size(), "%.17g", value);
  return {text.data(), static_cast<std::size_t>(length)};
}

// The header and the rows of steps 1 … steps. A last line without its end is a torn write.
std::string keep_rows(const std::string& text, Index steps, const std::string& file) {
  std::size_t end = text.find('\n');
  if (end == std::string::npos || std::string_view(text).substr(0, end) != kHeader) {
    fail_corrupt(file, concat("the header '", kHeader, "'"), "another first line");
  }
  for (Index step = 1; step <= steps; ++step) {
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

}  // namespace

std::vector<MetricsRow> read_metrics(const std::filesystem::path& path) {
  const std::string text = read_text_file(path), file = path.string();
  std::vector<MetricsRow> rows;
  std::size_t begin = keep_rows(text, 0, file).size();
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::array<std::optional<double>, 7> cells;
    const char* at = text.data() + begin;
    const char* const last = text.data() + end;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      double value = 0;
      const auto parsed = std::from_chars(at, last, value);
      if (parsed.ec == std::errc()) cells[i] = value;
      at = parsed.ptr;
      const bool separated = i + 1 == cells.size() ? at == last : at != last && *at++ == ',';
      if (!separated || (i < 5 && !cells[i])) {
        fail_corrupt(file, concat("seven numbers after row ", rows.size()),
                     text.substr(begin, end - begin));
      }
    }
    rows.push_back({static_cast<Index>(*cells[0]), *cells[1], *cells[2], *cells[3], *cells[4],
                    cells[5], cells[6]});
  }
  return rows;
}

MetricsLog::MetricsLog(const std::filesystem::path& path, std::optional<Index> keep_steps)
    : file_(path, keep_steps ? keep_rows(read_text_file(path), *keep_steps, path.string())
                             : concat(kHeader, '\n')) {}

void MetricsLog::add(const MetricsRow& row) { file_.append(to_line(row)); }

std::string MetricsLog::to_line(const MetricsRow& row) {
  const auto optional = [](const std::optional<double>& value) {
    return value ? exact(*value) : std::string();
  };
  return concat(row.step, ',', exact(row.loss), ',', exact(row.lr), ',', exact(row.grad_norm), ',',
                exact(row.tokens_per_s), ',', optional(row.val_loss), ',',
                optional(row.val_bits_per_byte), '\n');
}

}  // namespace hone::trainer
