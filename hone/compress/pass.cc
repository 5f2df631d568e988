// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/pass.h"

#include <algorithm>
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

Json outcome_of(const PassRecord& record) {
  const auto spread = [](const Spread& one) { return Json{one.median, one.p10, one.p90, one.n}; };
  return {{"status", static_cast<int>(record.status)},
          {"reason", record.reason},
          {"gate_held", record.gate_held},
          {"ms_before", spread(record.ms_before)},
          {"ms_after", spread(record.ms_after)},
          {"speedup", {record.speedup.ratio, record.speedup.low, record.speedup.high}},
          {"card", record.quality ? record.quality->card : Json()}};
}

void restore_outcome(const Json& outcome, PassRecord& record) {
  const auto spread = [](const Json& one) {
    return Spread{one.at(0), one.at(1), one.at(2), one.at(3)};
  };
  record.status = static_cast<Status>(outcome.at("status").get<int>());
  record.reason = outcome.at("reason");
  record.gate_held = outcome.at("gate_held");
  record.ms_before = spread(outcome.at("ms_before"));
  record.ms_after = spread(outcome.at("ms_after"));
  const Json& speedup = outcome.at("speedup");
  record.speedup = {speedup.at(0), speedup.at(1), speedup.at(2)};
  if (!outcome.at("card").is_null()) record.quality = Quality{.card = outcome.at("card")};
}

Index PlannedMatrix::bytes(bool masks) const {
  const double each = masks && kept < 1 ? std::min(bits, 1 + kept * bits) : bits;
  return static_cast<Index>(std::ceil(static_cast<double>(rows * cols) * share * each / 8));
}

void require_calibration(const Context& context, std::string_view op) {
  HONE_CHECK(!context.calibration.empty(), op, "a calibration text", "none");
}

void throw_if_cancelled(const Context& context) {
  if (context.stop.stop_requested()) {
    throw Error(ErrorCategory::Cancelled,
                concat("[compress] The run was interrupted and no model was written",
                       context.steps != nullptr ? "; the same command continues it." : "."));
  }
}

}  // namespace hone::compress
