// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "hone/core/machine/measurer.h"
#include "hone/core/text_format.h"

namespace hone {

// {"ratio", "low", "high"}.
inline Json to_json(const RatioInterval& interval) {
  return {{"ratio", interval.ratio}, {"low", interval.low}, {"high", interval.high}};
}

// "1.25x [1.22, 1.27]"
inline std::string ratio_text(const Json& interval) {
  const auto text = [&](const char* name) { return fixed(interval.at(name).get<double>(), 2); };
  return concat(text("ratio"), "x [", text("low"), ", ", text("high"), "]");
}

}  // namespace hone
