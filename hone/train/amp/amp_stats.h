// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Event.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/machine/clock.h"
#include "hone/train/amp/grad_scaler.h"
#include "hone/train/amp/gradient_statistics.h"

namespace hone::amp {

enum class AmpPhase { Forward, Backward, Optimizer };

struct AmpStep {
  Index step = 0;
  double scale = 1;  // in effect during the step
  bool found_inf = false, stepped = false;
};

// Observations of a run under mixed precision. Only one thread may record.
class AmpStats {
 public:
  // Measures the seconds of a scope, on a device by events in its current stream, so that a phase
  // contains only its own work and nothing waits.
  class Timer {
   public:
    Timer(AmpStats& stats, AmpPhase phase);
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    AmpStats& stats_;
    AmpPhase phase_;
    std::int64_t begin_ns_ = 0;
    std::optional<c10::Event> begin_;  // on a device
  };

  // `precision` says what ran: AutocastReport::describe(), "emulated fp16 on cpu". `clock` must
  // outlive this object.
  explicit AmpStats(std::string precision, c10::Device device = at::kCPU,
                    const Clock& clock = steady_clock());

  [[nodiscard]] Timer time(AmpPhase phase) { return Timer(*this, phase); }
  // Waits until the device has done what timers saw, and adds their seconds.
  void settle();
  // Call it after every update(). It stores an AmpStep per step.
  void record(Index step, const ScaleUpdate& update);
  void record(const AmpStep& step) { history_.push_back(step); }
  // Adds the gradients of a step to the range statistics. Ignores gradients with an inf or NaN:
  // they carry no information about the range, and found_inf counts them.
  void observe(const GradientStatistics& gradients);
  // Raises the recorded peaks to this value and to the peak of resident memory of this process.
  void note_memory(Index allocator_peak_bytes);

  const std::vector<AmpStep>& history() const { return history_; }
  const GradientStatistics& gradients() const { return gradients_; }
  const std::string& precision() const { return precision_; }
  // On a device, of what has been settled.
  double seconds(AmpPhase phase) const { return seconds_[static_cast<std::size_t>(phase)]; }
  // By AmpPhase.
  const std::array<double, 3>& seconds() const { return seconds_; }
  Index overflow_count() const;
  Index peak_rss_bytes() const { return peak_rss_bytes_; }
  Index allocator_peak_bytes() const { return allocator_peak_bytes_; }

 private:
  struct Interval {
    AmpPhase phase;
    c10::Event begin, end;
  };
  c10::Event mark() const;

  std::string precision_;
  c10::Device device_;
  const Clock& clock_;
  std::array<double, 3> seconds_{};
  std::vector<Interval> pending_;
  std::vector<AmpStep> history_;
  GradientStatistics gradients_;
  Index peak_rss_bytes_ = 0, allocator_peak_bytes_ = 0;
};

// Statistics over the recorded steps. Fields without data are empty. Fractions of gradients refer
// to the nonzero ones.
struct AmpAnalysis {
  std::string precision;
  Index steps = 0, overflow_count = 0;
  std::optional<double> overflow_rate;  // overflow_count / steps
  std::optional<double> skipped_fraction;
  std::optional<double> average_scale;
  std::optional<double> scale_variance;           // population
  std::optional<double> scale_stability;          // 1 / (1 + variance / average²)
  std::optional<double> final_scale;              // in effect in the last step
  std::optional<double> steps_between_overflows;  // mean; needs at least two overflows
  std::optional<double> underflow_fraction, subnormal_fraction;
  std::optional<double> recommended_scale;  // recommend_scale() of the observed gradients
  std::optional<double> error_norm;         // ‖g - g₁₆‖₂ over all observed gradients
  std::optional<double> relative_error;     // error_norm / ‖g‖₂
  GradientStatistics gradients;
  double forward_seconds = 0, backward_seconds = 0, optimizer_seconds = 0;
  Index peak_rss_bytes = 0, allocator_peak_bytes = 0;
};
AmpAnalysis analyze(const AmpStats& stats);
// Empty values become null. The histogram lists [exponent, count] of each nonempty bin, where |g| ≤
// 2^exponent.
Json to_json(const AmpAnalysis& analysis);

}  // namespace hone::amp
