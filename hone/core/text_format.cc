// SPDX-License-Identifier: Apache-2.0
#include "hone/core/text_format.h"

#include <fmt/format.h>

#include <algorithm>

namespace hone {
namespace {

// Code points, that is, bytes that do not continue one.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::string fixed(double value, int decimals) { return fmt::format("{:.{}f}", value, decimals); }

std::string format_bytes(Index bytes, ByteUnits units) {
  constexpr std::string_view kPrefixes = "kMGT";
  const bool is_binary = units == ByteUnits::Binary;
  const double step = is_binary ? 1024 : 1000;
  if (bytes == 1) return "1 byte";
  if (static_cast<double>(bytes) < step) return fmt::format("{} bytes", bytes);
  auto value = static_cast<double>(bytes) / step;
  std::size_t at = 0;
  // 999.5 kB would round to 1000 kB.
  for (; at + 1 < kPrefixes.size() && value >= step - 0.5; ++at) value /= step;
  std::string digits = fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
  if (digits.find('.') != digits.npos) {
    digits.resize(digits.find_last_not_of('0') + 1);
    if (digits.ends_with('.')) digits.pop_back();
  }
  const char prefix = is_binary && at == 0 ? 'K' : kPrefixes[at];
  return fmt::format("{} {}{}B", digits, prefix, is_binary ? "i" : "");
}

std::string group_digits(Index number) {
  std::string digits = fmt::format("{}", number);
  const std::size_t first = digits[0] == '-' ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string format_table(const std::vector<std::vector<std::string>>& rows,
                         std::string_view sides) {
  std::vector<std::size_t> widths(sides.size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - columns(row[i]), ' ');
      if (i > 0) line += "  ";
      line += sides[i] == 'r' ? padding + row[i] : row[i] + padding;
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string align_right(std::string_view text, Index width) {
  return fmt::format("{:>{}}", text, width);
}

std::string align_left(std::string_view text, Index width) {
  return fmt::format("{:<{}}", text, width);
}

}  // namespace hone
