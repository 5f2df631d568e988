// SPDX-License-Identifier: Apache-2.0
#include "hone/train/amp/amp_stats.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hone::amp {
namespace {

// ru_maxrss is in KiB.
Index peak_resident_bytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? Index{usage.ru_maxrss} * 1024 : 0;
}

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
  stats_.wait_for_device();
  begin_ns_ = stats_.clock_.now_ns();
}

AmpStats::Timer::~Timer() {
  try {
    stats_.wait_for_device();
  } catch (const std::exception&) {  // the device's error comes up in the next call that uses it
  }
  stats_.seconds_[static_cast<std::size_t>(phase_)] +=
      seconds_between(begin_ns_, stats_.clock_.now_ns());
}

void AmpStats::wait_for_device() const {
  if (device_.is_cpu()) return;
  const auto* backend = c10::impl::getDeviceGuardImpl(device_.type());
  backend->synchronizeDevice(device_.has_index() ? device_.index() : backend->getDevice().index());
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
  out.forward_seconds = stats.seconds(AmpPhase::Forward);
  out.backward_seconds = stats.seconds(AmpPhase::Backward);
  out.optimizer_seconds = stats.seconds(AmpPhase::Optimizer);
  out.peak_rss_bytes = stats.peak_rss_bytes();
  out.allocator_peak_bytes = stats.allocator_peak_bytes();
  return out;
}

Json to_json(const AmpAnalysis& a) {
  return {{"precision", a.precision},
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
          {"error_norm", or_null(a.error_norm)},
          {"relative_error", or_null(a.relative_error)},
          {"exponent_histogram", histogram_of(a.gradients)},
          {"forward_seconds", a.forward_seconds},
          {"backward_seconds", a.backward_seconds},
          {"optimizer_seconds", a.optimizer_seconds},
          {"peak_rss_bytes", a.peak_rss_bytes},
          {"allocator_peak_bytes", a.allocator_peak_bytes}};
}

}  // namespace hone::amp
