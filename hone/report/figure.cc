// SPDX-License-Identifier: Apache-2.0
#include "hone/report/figure.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "hone/core/check.h"

namespace hone::report {
namespace {

constexpr std::string_view kThinSpace = "\u202F";

Json finite_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json();
}

// Groups thousands from five digits on.
std::string group_digits(const std::string& number) {
  const auto begin = number.find_first_of("0123456789");
  const auto end = std::min(number.find('.'), number.size());
  if (begin == std::string::npos || end - begin < 5) return number;
  std::string out = number.substr(0, begin);
  for (std::size_t i = begin; i < end; ++i) {
    if (i > begin && (end - i) % 3 == 0) out += kThinSpace;
    out += number[i];
  }
  return out + number.substr(end);
}

}  // namespace

Figure figure(double value, std::string unit, int decimals) {
  Figure made;
  made.value = value;
  made.unit = std::move(unit);
  made.decimals = decimals;
  return made;
}

std::string_view name_of(FigureLabel label) {
  switch (label) {
    case FigureLabel::Measured:
      return "measured";
    case FigureLabel::Modeled:
      return "modeled";
    case FigureLabel::Reported:
      return "reported";
  }
  return "unknown";
}

// Four significant digits without trailing zeros.
int decimals_shown(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(value) || size == std::floor(size)) return 0;
  const int magnitude = static_cast<int>(std::floor(std::log10(size)));
  int decimals = std::clamp(3 - magnitude, 0, 6);
  const std::string text = fmt::format("{:.{}f}", size, decimals);
  for (auto last = text.rbegin(); decimals > 0 && *last == '0'; ++last) --decimals;
  return decimals;
}

std::string format_number(double value, int decimals) {
  if (!std::isfinite(value)) return "–";
  const double size = std::abs(value);
  if (decimals < 0 && size > 0 && (size < 1e-4 || size >= 1e15)) {
    return fmt::format("{:.3g}", value);
  }
  std::string text = fmt::format("{:.{}f}", value, decimals < 0 ? decimals_shown(value) : decimals);
  if (text.starts_with('-')) text = "\u2212" + text.substr(1);
  return group_digits(text);
}

std::string format_interval(const Figure& figure) {
  const auto pair = [&](double low, double high) {
    return concat("[", format_number(low, figure.decimals), ", ",
                  format_number(high, figure.decimals), "]");
  };
  if (figure.ci) return pair(figure.ci->first, figure.ci->second);
  if (figure.p10 && figure.p90) return pair(*figure.p10, *figure.p90);
  return "";
}

Json to_json(const Figure& figure) {
  Json json;
  json["value"] = finite_or_null(figure.value);
  json["unit"] = figure.unit;
  json["n"] = figure.n > 0 ? Json(figure.n) : Json();
  json["p10"] = finite_or_null(figure.p10);
  json["p90"] = finite_or_null(figure.p90);
  json["ci"] = figure.ci
                   ? Json({finite_or_null(figure.ci->first), finite_or_null(figure.ci->second)})
                   : Json();
  json["label"] = name_of(figure.label);
  return json;
}

}  // namespace hone::report
