// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/gate.h"

#include "hone/core/check.h"

namespace hone::compress {
namespace {

// Describes the first gate that does not hold; empty if all hold.
std::string broken_gate(const Gate& gate, const PassRecord& record) {
  if (record.bytes_before - record.bytes_after < gate.min_bytes_saved) {
    return concat("saves ", record.bytes_before - record.bytes_after,
                  " bytes; the gate requires at least ", gate.min_bytes_saved);
  }
  if (gate.min_speedup > 0 && record.ms_after.n > 0 && record.speedup.low < gate.min_speedup) {
    return concat("speed-up ", record.speedup.ratio, " [", record.speedup.low, ", ",
                  record.speedup.high, "]; the gate requires at least ", gate.min_speedup);
  }
  if (!record.quality) return {};
  const Quality& quality = *record.quality;
  if (gate.max_ppl_ratio > 0 && !(quality.ppl_ratio_high <= gate.max_ppl_ratio)) {
    return concat("perplexity ratio ", quality.ppl_ratio, " [", quality.ppl_ratio_low, ", ",
                  quality.ppl_ratio_high, "]; the gate requires at most ", gate.max_ppl_ratio);
  }
  if (gate.max_kl > 0 && !(quality.kl_mean <= gate.max_kl)) {
    return concat("mean KL ", quality.kl_mean, "; the gate requires at most ", gate.max_kl);
  }
  if (gate.min_top1 > 0 && !(quality.top1_agreement >= gate.min_top1)) {
    return concat("top-1 agreement ", quality.top1_agreement, "; the gate requires at least ",
                  gate.min_top1);
  }
  return {};
}

}  // namespace

void apply_gate(const Gate& gate, PassRecord& record) {
  const std::string broken = broken_gate(gate, record);
  if (broken.empty()) {
    record.status = Status::Applied;
    record.reason = "every gate held";
    return;
  }
  record.gate_held = false;
  record.reason = broken;
  switch (gate.on_fail) {
    case OnFail::Skip:
      record.status = Status::Skipped;
      return;
    case OnFail::Stop:
      record.status = Status::Failed;
      return;
    case OnFail::Keep:
      record.status = Status::Applied;
      record.reason += " (kept: gate.on_fail = \"keep\")";
      return;
  }
}

}  // namespace hone::compress
