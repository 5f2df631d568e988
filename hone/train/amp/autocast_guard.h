// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "hone/core/machine/measurer.h"

namespace hone::amp {

// What ran: "cpu BFloat16", or "inactive: …" with the reason.
struct AutocastReport {
  bool active = false;
  c10::DeviceType device = c10::DeviceType::CPU;
  at::ScalarType dtype = at::kFloat;  // operators that autocast lowers run in; fp32 when inactive
  std::string reason;                 // why inactive

  std::string describe() const;
};

// What a guard would report: whether the device is present, supports autocast, and multiplies in
// that type (tested once per process and pair).
AutocastReport probe_autocast(c10::DeviceType device, at::ScalarType dtype);

// Autocast for a scope, on this thread, with Python's semantics: guards nest, enabled = false
// switches it off inside, and leaving the scope (also by an exception) restores what was before.
// Leaving the outermost guard drops the cached casts of weights. Where autocast is not available,
// the scope runs in fp32 and the report says why.
class AutocastGuard {
 public:
  AutocastGuard(c10::DeviceType device, at::ScalarType dtype, bool enabled = true);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

  const AutocastReport& report() const { return report_; }

 private:
  AutocastReport report_;
  bool has_autocast_;
  bool previous_enabled_ = false;
  at::ScalarType previous_dtype_ = at::kFloat;
};

struct PrecisionChoice {
  bool use_bf16 = false;
  RatioInterval speedup;  // of bf16 over fp32; 1 where it could not be measured
  std::string reason;     // one sentence
};

// Times `forward` with and without bf16 autocast, interleaved; bf16 is chosen only when it is
// faster over the whole 95 % interval. (Without bf16 instructions a CPU runs it slower than fp32.)
PrecisionChoice choose_precision(const std::function<void()>& forward, c10::DeviceType device,
                                 Measurer& measurer, const MeasureOptions& options = {});
inline bool bf16_is_faster(const std::function<void()>& forward, c10::DeviceType device,
                           Measurer& measurer, const MeasureOptions& options = {}) {
  return choose_precision(forward, device, measurer, options).use_bf16;
}

}  // namespace hone::amp
