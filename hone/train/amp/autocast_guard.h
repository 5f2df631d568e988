// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "hone/core/machine/measurer.h"

namespace hone::amp {

// What autocast does in a scope: "cpu BFloat16", or "inactive: …" with the reason.
struct AutocastReport {
  bool active = false;
  c10::DeviceType device = c10::DeviceType::CPU;
  at::ScalarType dtype = at::kFloat;  // type of operators that autocast lowers; fp32 if inactive
  std::string reason;                 // why inactive

  std::string describe() const;
};

// Returns the report that a guard would have. Checks that the device is present, supports autocast,
// and multiplies in this type. The multiplication is tested once per process, device and type.
AutocastReport probe_autocast(c10::DeviceType device, at::ScalarType dtype);

// Enables autocast on this thread for a scope, with Python's semantics: guards nest, and enabled =
// false disables it inside. The end of the scope (also by an exception) restores the previous
// state. The end of the outermost scope drops the cached casts of weights. If autocast is not
// available, the scope runs in fp32 and the report states why.
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
  RatioInterval speedup;  // of bf16 over fp32; 1 if it could not be measured
  std::string reason;     // one sentence
};

// Times `forward` with and without bf16 autocast, interleaved. Chooses bf16 only if the whole 95 %
// interval of the speedup is above 1. (A CPU without bf16 instructions is slower in bf16 than in
// fp32.)
PrecisionChoice choose_precision(const std::function<void()>& forward, c10::DeviceType device,
                                 Measurer& measurer, const MeasureOptions& options = {});
inline bool bf16_is_faster(const std::function<void()>& forward, c10::DeviceType device,
                           Measurer& measurer, const MeasureOptions& options = {}) {
  return choose_precision(forward, device, measurer, options).use_bf16;
}

}  // namespace hone::amp
