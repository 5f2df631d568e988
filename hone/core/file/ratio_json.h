// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/file/json_io.h"
#include "hone/core/machine/measurer.h"

namespace hone {

// {"ratio", "low", "high"}.
inline Json to_json(const RatioInterval& interval) {
  return {{"ratio", interval.ratio}, {"low", interval.low}, {"high", interval.high}};
}

}  // namespace hone
