// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"

namespace hone::report {

// The origin of a number. Only measured numbers may be labeled Measured.
enum class FigureLabel { Measured, Modeled, Reported };
std::string_view name_of(FigureLabel label);

// One number of a report, with its unit, spread and origin.
struct Figure {
  double value = 0;  // NaN and infinity are shown as absent
  std::string unit;  // "ms", "MB", "tokens/s", "" for a pure number
  Index n = 0;       // number of samples; 0 if that has no meaning
  std::optional<double> p10, p90;
  std::optional<std::pair<double, double>> ci;  // 95 %
  FigureLabel label = FigureLabel::Measured;
  int decimals = -1;  // -1 means up to four significant digits, and whole numbers in full
};
// A figure of one value.
Figure figure(double value, std::string unit, int decimals = -1);

// "12.34", "1 234 567" (with narrow no-break spaces), "–" for values that are not finite.
std::string format_number(double value, int decimals = -1);
// The number of decimals that format_number() shows. A column uses the maximum of its figures.
int decimals_shown(double value);
// "[11.9, 12.8]" for the ci, otherwise for p10 and p90, otherwise "".
std::string format_interval(const Figure& figure);
// {value, unit, n, p10, p90, ci, label}; absent parts are null.
Json to_json(const Figure& figure);

}  // namespace hone::report
