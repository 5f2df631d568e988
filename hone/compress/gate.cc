// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/gate.h"

#include "hone/core/check.h"

namespace hone::compress {
namespace {

// Describes every gate that does not hold, quality first; empty if all hold.
std::string broken_gates(const Gate& gate, const PassRecord& record) {
  std::string broken;
  const auto add = [&](auto... parts) {
    broken += concat(broken.empty() ? "" : "; ", parts..., "; the gate requires at ");
  };
  if (const auto& quality = record.quality) {
    if (gate.max_ppl_ratio > 0 && !(quality->ppl_ratio_high <= gate.max_ppl_ratio)) {
      add("perplexity ratio ", quality->ppl_ratio, " [", quality->ppl_ratio_low, ", ",
          quality->ppl_ratio_high, "]");
      broken += concat("most ", gate.max_ppl_ratio);
    }
    if (gate.max_kl > 0 && !(quality->kl_high <= gate.max_kl)) {
      add("mean KL ", quality->kl_mean, ", up to ", quality->kl_high, " with 95 % confidence");
      broken += concat("most ", gate.max_kl);
    }
    if (gate.min_top1 > 0 && !(quality->top1_low >= gate.min_top1)) {
      add("top-1 agreement ", quality->top1_agreement, ", from ", quality->top1_low,
          " with 95 % confidence");
      broken += concat("least ", gate.min_top1);
    }
  }
  if (record.bytes_before - record.bytes_after < gate.min_bytes_saved) {
    add("saves ", record.bytes_before - record.bytes_after, " bytes");
    broken += concat("least ", gate.min_bytes_saved);
  }
  if (gate.min_speedup > 0 && record.ms_after.n > 0 && record.speedup.low < gate.min_speedup) {
    add("speed-up ", record.speedup.ratio, " [", record.speedup.low, ", ", record.speedup.high,
        "]");
    broken += concat("least ", gate.min_speedup);
  }
  return broken;
}

}  // namespace

void apply_gate(const Gate& gate, PassRecord& record) {
  const std::string broken = broken_gates(gate, record);
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
      record.reason += "; kept, as gate.on_fail says";
      return;
  }
}

}  // namespace hone::compress
