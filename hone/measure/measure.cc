// SPDX-License-Identifier: Apache-2.0
#include "hone/measure/measure.h"

#include <algorithm>
#include <cmath>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/machine/trace.h"
#include "hone/measure/cpu_load.h"
#include "hone/measure/statistics.h"

namespace hone::measure {
namespace {

constexpr double kClockStep = 20e-9;  // shorter times cannot be distinguished from 0

void check(std::span<const Contestant> contestants, const MeasureOptions& options) {
  HONE_REQUIRE(!contestants.empty(), "measure", "There is no contestant.");
  for (const Contestant& contestant : contestants) {
    HONE_REQUIRE(contestant.run != nullptr, "measure",
                 concat("Contestant ", contestant.name, " has no function to run."));
  }
  HONE_CHECK(options.warm_up >= 0, "measure", "warm_up >= 0", options.warm_up);
  HONE_CHECK(options.min_samples >= 1 && options.max_samples >= options.min_samples, "measure",
             "1 <= min_samples <= max_samples",
             concat(options.min_samples, " and ", options.max_samples));
}

void throw_if_stopped(const MeasureOptions& options) {
  if (options.stop.stop_requested()) {
    throw Error(ErrorCategory::Cancelled, "the measurement was interrupted");
  }
}

class InterleavingMeasurer final : public Measurer {
 public:
  explicit InterleavingMeasurer(const Clock& clock) : clock_(clock) {}

  Measurement measure(std::span<const Contestant> contestants,
                      const MeasureOptions& options) override {
    check(contestants, options);
    const auto calls = warm_up(contestants, options);
    Measurement result;
    for (const Contestant& contestant : contestants) result.names.push_back(contestant.name);
    result.seconds.resize(contestants.size());
    const ForeignLoad load;
    const std::int64_t begin = clock_.now_ns();
    for (Index round = 0; round < options.max_samples; ++round) {
      run_round(contestants, calls, options, result);
      if (options.on_round) options.on_round(round + 1);
      const double elapsed = seconds_between(begin, clock_.now_ns());
      if (round + 1 >= options.min_samples &&
          (elapsed >= options.max_seconds || is_narrow(result, options.half_width))) {
        break;
      }
    }
    result.foreign_load = load.cpus();
    result.drift = drift_of(result.seconds.front());
    result.seed = options.seed;
    if (result.drift > kDriftLimit && options.warns_of_drift) {
      log_warning(concat("measure: ", result.names.front(), " drifted by ",
                         std::round(result.drift * 100),
                         " % during the measurement; ratios are valid, "
                         "absolute times are not"));
    }
    return result;
  }

  Spread spread(std::span<const double> samples) const override { return spread_of(samples); }

  RatioInterval speedup(const Measurement& measurement, Index impl, Index against) const override {
    const auto count = static_cast<Index>(measurement.seconds.size());
    HONE_CHECK(impl >= 0 && impl < count, "speedup", concat("a contestant below ", count), impl);
    HONE_CHECK(against >= 0 && against < count, "speedup", concat("a contestant below ", count),
               against);
    return bootstrap_ratio(measurement.seconds[static_cast<std::size_t>(impl)],
                           measurement.seconds[static_cast<std::size_t>(against)],
                           measurement.seed);
  }

 private:
  double time_sample(const Contestant& contestant, Index calls) const {
    if (contestant.prepare) {
      HONE_TRACE_ZONE("prepare sample", {"contestant", contestant.name});
      contestant.prepare();
    }
    HONE_TRACE_ZONE("sample", {"contestant", contestant.name}, {"calls", calls});
    const std::int64_t begin = clock_.now_ns();
    for (Index call = 0; call < calls; ++call) contestant.run();
    if (contestant.own_seconds) return contestant.own_seconds();
    return seconds_between(begin, clock_.now_ns()) / static_cast<double>(calls);
  }

  static Index calls_per_sample(const Contestant& contestant, double seconds) {
    const bool once = contestant.prepare || contestant.own_seconds;
    if (once || seconds >= kShortestSample) return 1;
    return static_cast<Index>(std::ceil(kShortestSample / std::max(seconds, kClockStep)));
  }

  // Runs the untimed rounds; returns how many calls each contestant's sample takes.
  std::vector<Index> warm_up(std::span<const Contestant> contestants,
                             const MeasureOptions& options) const {
    std::vector<Index> calls(contestants.size(), 1);
    for (Index round = 0; round < options.warm_up; ++round) {
      for (std::size_t i = 0; i < contestants.size(); ++i) {
        throw_if_stopped(options);
        calls[i] = calls_per_sample(contestants[i], time_sample(contestants[i], 1));
      }
    }
    return calls;
  }

  // The order is fixed, so that every sample of a contestant follows the same predecessor and none
  // finds its own data in the caches.
  void run_round(std::span<const Contestant> contestants, std::span<const Index> calls,
                 const MeasureOptions& options, Measurement& result) const {
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      throw_if_stopped(options);
      result.seconds[i].push_back(time_sample(contestants[i], calls[i]));
    }
  }

  static bool is_narrow(const Measurement& measurement, double half_width) {
    return std::ranges::all_of(measurement.seconds, [half_width](const auto& samples) {
      return median_half_width(samples) <= half_width;
    });
  }

  const Clock& clock_;
};

}  // namespace

std::unique_ptr<Measurer> make_measurer(const Clock& clock) {
  return std::make_unique<InterleavingMeasurer>(clock);
}

}  // namespace hone::measure
