// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/pass.h"

#include <cmath>

#include "hone/core/check.h"

namespace hone::compress {

std::string_view name_of(Status status) {
  switch (status) {
    case Status::Applied:
      return "applied";
    case Status::Skipped:
      return "skipped";
    default:
      return "failed";
  }
}

Json to_json(const PassRecord& record) {
  Json out = {{"name", record.name},
              {"family", record.family},
              {"status", name_of(record.status)},
              {"reason", record.reason},
              {"bytes_before", record.bytes_before},
              {"bytes_after", record.bytes_after},
              {"ms_before", nullptr},
              {"ms_after", nullptr},
              {"speedup", nullptr},
              {"quality", nullptr},
              {"rounded_again", record.rounded_again},
              {"kept", record.kept},
              {"statistics", record.statistics},
              {"evidence", record.evidence}};
  if (record.ms_after.n > 0) {
    out["ms_before"] = record.ms_before.median;
    out["ms_after"] = record.ms_after.median;
    out["speedup"] = {{"ratio", record.speedup.ratio},
                      {"ci", {record.speedup.low, record.speedup.high}},
                      {"n", record.ms_after.n}};
  }
  if (record.quality) out["quality"] = record.quality->card;
  return out;
}

Index PlannedMatrix::bytes() const {
  return static_cast<Index>(std::ceil(static_cast<double>(rows * cols) * bits / 8));
}

void throw_if_cancelled(const Context& context) {
  if (context.stop.stop_requested()) {
    throw Error(ErrorCategory::Cancelled,
                "[compress] The run was interrupted, so nothing was written.");
  }
}

}  // namespace hone::compress
