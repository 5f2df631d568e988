// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "hone/core/index.h"
#include "hone/core/json_io.h"

namespace hone::tune {

// Where a number comes from. Nothing is shown as measured that was not.
enum class FigureLabel { Measured, Modeled, Reported };
std::string_view name_of(FigureLabel label);

// One number of a report, with everything a reader needs to trust it.
struct Figure {
  double value = 0;  // NaN or infinity: shown as absent
  std::string unit;  // "ms", "MB", "tokens/s", "" for a pure number
  Index n = 0;       // samples behind it, 0 where that has no meaning
  std::optional<double> p10, p90;
  std::optional<std::pair<double, double>> ci;  // 95 %
  FigureLabel label = FigureLabel::Measured;
  int decimals = -1;  // -1: up to four significant digits, whole numbers in full
};

// "12.34", "1 234 567" (narrow no-break spaces), "–" for what is not finite.
std::string format_number(double value, int decimals = -1);
// How many decimals format_number() shows: a column uses the most that any of its figures needs.
int decimals_shown(double value);
// "[11.9, 12.8]" of the interval that is there (ci before p10, p90), else "".
std::string format_interval(const Figure& figure);
// {value, unit, n, p10, p90, ci, label}; absent parts are null.
Json to_json(const Figure& figure);

}  // namespace hone::tune
