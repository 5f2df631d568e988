// SPDX-License-Identifier: Apache-2.0
#include "hone/train/amp/amp_stats.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hone/core/machine/process_memory.h"

namespace hone::amp {
namespace {

void analyze_scales(const std::vector<AmpStep>& history, AmpAnalysis& out) {
  const auto steps = static_cast<double>(history.size());
  double sum = 0, squares = 0, skipped = 0;
  for (const AmpStep& step : history) {
    sum += step.scale;
    skipped += step.stepped ? 0 : 1;
  }
  const double average = sum / steps;
  for (const AmpStep& step : history) {
    squares += (step.scale - average) * (step.scale - average);
  }
  const double variance = squares / steps;
  out.overflow_rate = static_cast<double>(out.overflow_count) / steps;
  out.skipped_fraction = skipped / steps;
  out.average_scale = average;
  out.scale_variance = variance;
  out.scale_stability = 1 / (1 + variance / (average * average));
  out.final_scale = history.back().scale;
}

std::optional<double> gap_between_overflows(const std::vector<AmpStep>& history, Index overflows) {
  if (overflows < 2) return {};
  const auto overflowed = [](const AmpStep& step) { return step.found_inf; };
  const auto first = std::find_if(history.begin(), history.end(), overflowed);
  const auto last = std::find_if(history.rbegin(), history.rend(), overflowed);
  return static_cast<double>(last->step - first->step) / static_cast<double>(overflows - 1);
}

void analyze_gradients(const GradientStatistics& gradients, AmpAnalysis& out) {
  const Index nonzero = std::accumulate(gradients.bins.begin(), gradients.bins.end(), Index{0});
  if (nonzero == 0) return;
  const auto all = static_cast<double>(nonzero);
  out.underflow_fraction = static_cast<double>(gradients.underflows) / all;
  out.subnormal_fraction = static_cast<double>(gradients.subnormals) / all;
  out.error_norm = std::sqrt(gradients.error_square_sum);
  if (gradients.square_sum > 0) {
    out.relative_error = std::sqrt(gradients.error_square_sum / gradients.square_sum);
  }
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json histogram_of(const GradientStatistics& gradients) {
  Json bins = Json::array();
  for (std::size_t b = 0; b < gradients.bins.size(); ++b) {
    if (gradients.bins[b] == 0) continue;
    bins.push_back({GradientStatistics::kFirstExponent + static_cast<int>(b), gradients.bins[b]});
  }
  return bins;
}

}  // namespace

AmpStats::AmpStats(std::string precision, c10::Device device, const Clock& clock)
    : precision_(std::move(precision)), device_(device), clock_(clock) {}

AmpStats::Timer::Timer(AmpStats& stats, AmpPhase phase) : stats_(stats), phase_(phase) {
  if (stats_.device_.is_cpu()) {
    begin_ns_ = stats_.clock_.now_ns();
  } else {
    begin_.emplace(stats_.mark());
  }
}

AmpStats::Timer::~Timer() {
  if (!begin_) {
    stats_.seconds_[static_cast<std::size_t>(phase_)] +=
        seconds_between(begin_ns_, stats_.clock_.now_ns());
    return;
  }
  try {
    stats_.pending_.push_back({phase_, *std::move(begin_), stats_.mark()});
  } catch (const std::exception&) {  // the device's error comes up in the next call that uses it
  }
}

c10::Event AmpStats::mark() const {
  const c10::impl::VirtualGuardImpl backend(device_.type());
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // the flag asks for times
  event.record(backend.getStream(device_.has_index() ? device_ : backend.getDevice()));
  return event;
}

void AmpStats::settle() {
  constexpr double kSecondsPerMs = 1e-3;
  for (const Interval& one : pending_) {
    one.end.synchronize();
    seconds_[static_cast<std::size_t>(one.phase)] += one.begin.elapsedTime(one.end) * kSecondsPerMs;
  }
  pending_.clear();
}

void AmpStats::record(Index step, const ScaleUpdate& update) {
  history_.push_back({step, update.scale, update.found_inf, update.stepped});
}

void AmpStats::observe(const GradientStatistics& gradients) {
  if (gradients.nonfinite == 0) gradients_ += gradients;
}

void AmpStats::note_memory(Index allocator_peak_bytes) {
  allocator_peak_bytes_ = std::max(allocator_peak_bytes_, allocator_peak_bytes);
  peak_rss_bytes_ = std::max(peak_rss_bytes_, peak_resident_bytes());
}

Index AmpStats::overflow_count() const {
  return std::count_if(history_.begin(), history_.end(),
                       [](const AmpStep& step) { return step.found_inf; });
}

AmpAnalysis analyze(const AmpStats& stats) {
  AmpAnalysis out;
  out.precision = stats.precision();
  out.steps = static_cast<Index>(stats.history().size());
  out.overflow_count = stats.overflow_count();
  if (out.steps > 0) analyze_scales(stats.history(), out);
  out.steps_between_overflows = gap_between_overflows(stats.history(), out.overflow_count);
  out.gradients = stats.gradients();
  analyze_gradients(out.gradients, out);
  if (out.gradients.largest > 0)
    out.recommended_scale = recommend_scale(out.gradients, out.final_scale.value_or(1)).scale;
  out.forward_seconds = stats.seconds(AmpPhase::Forward);
  out.backward_seconds = stats.seconds(AmpPhase::Backward);
  out.optimizer_seconds = stats.seconds(AmpPhase::Optimizer);
  out.peak_rss_bytes = stats.peak_rss_bytes();
  out.allocator_peak_bytes = stats.allocator_peak_bytes();
  return out;
}

Json to_json(const AmpAnalysis& a) {
  return {
      {"precision", a.precision},
      {"steps", a.steps},
      {"overflow_count", a.overflow_count},
      {"overflow_rate", or_null(a.overflow_rate)},
      {"skipped_fraction", or_null(a.skipped_fraction)},
      {"average_scale", or_null(a.average_scale)},
      {"scale_variance", or_null(a.scale_variance)},
      {"scale_stability", or_null(a.scale_stability)},
      {"final_scale", or_null(a.final_scale)},
      {"steps_between_overflows", or_null(a.steps_between_overflows)},
      {"underflow_fraction", or_null(a.underflow_fraction)},
      {"subnormal_fraction", or_null(a.subnormal_fraction)},
      {"recommended_scale", or_null(a.recommended_scale)},
      {"error_norm", or_null(a.error_norm)},
      {"relative_error", or_null(a.relative_error)},
      {"exponent_histogram", histogram_of(a.gradients)},
      {"forward_seconds", a.forward_seconds},
      {"backward_seconds", a.backward_seconds},
      {"optimizer_seconds", a.optimizer_seconds},
      {"peak_rss_bytes", a.peak_rss_bytes},
      {"allocator_peak_bytes", a.allocator_peak_bytes > 0 ? Json(a.allocator_peak_bytes) : Json()}};
}

}  // namespace hone::amp
