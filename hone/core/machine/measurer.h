// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/core/index.h"

namespace hone {

// One of several functions that are timed against each other.
struct Contestant {
  std::string name;
  // Called once per sample, or repeatedly if it is too short to time and has neither `prepare` nor
  // `own_seconds`.
  std::function<void()> run = {};
  std::function<void()> prepare = {};  // called untimed before each sample; may be empty
  // Returns the seconds of the last run by another clock, for example for work in another process.
  // If empty, the measurer times the run.
  std::function<double()> own_seconds = {};
};

struct MeasureOptions {
  Index warm_up = 2;       // untimed rounds
  Index min_samples = 10;  // timed rounds
  Index max_samples = 200;
  double half_width = 0.02;  // stop when the median's 95 % interval is this narrow (share)
  double max_seconds = 10;   // for all contestants together, after min_samples
  std::uint64_t seed = 1;    // for the bootstrap
  bool warns_of_drift = true;
  std::stop_token stop = {};  // requested: Error{Cancelled} before the next sample
  std::function<void(Index rounds)> on_round = {};  // called untimed after each timed round
};

struct Spread {
  double median = 0, p10 = 0, p90 = 0;
  Index n = 0;
};

// Ratio of medians with a 95 % paired bootstrap interval.
struct RatioInterval {
  double ratio = 1, low = 1, high = 1;
  bool is_tie() const { return low <= 1 && high >= 1; }
};

struct Measurement {
  std::vector<std::string> names;
  std::vector<std::vector<double>> seconds;  // [contestant][round], rounds interleaved A, B, A, B…
  double foreign_load = 0;  // CPUs kept busy by other processes during the measurement
  // Largest change of the first contestant's median over any ten rounds, as a fraction of its
  // median over the first ten.
  double drift = 0;
  std::uint64_t seed = 1;  // for the bootstrap, copied from the options
};

// The only way to time code. The other layers take it by reference; measure implements it.
class Measurer {
 public:
  virtual ~Measurer() = default;
  // Runs all contestants in interleaved rounds and keeps every sample.
  virtual Measurement measure(std::span<const Contestant> contestants,
                              const MeasureOptions& options) = 0;
  virtual Spread spread(std::span<const double> samples) const = 0;
  // Returns the ratio of the time of `against` to the time of `impl`; above 1, impl is faster.
  virtual RatioInterval speedup(const Measurement& measurement, Index impl,
                                Index against) const = 0;
};

}  // namespace hone
