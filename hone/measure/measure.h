// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "hone/core/machine/clock.h"
#include "hone/core/machine/measurer.h"

namespace hone::measure {

// The timing harness. Every round runs each contestant once, in a fixed order, so that a change in
// the machine's speed affects all of them. Every sample is kept. Measuring stops when the 95 %
// interval of every contestant's median is within +-half_width of that median, at max_samples, or
// after max_seconds, but not before min_samples.
//
// If a call takes less than kShortestSample in the warm-up, a sample is the mean of as many calls
// as fill that time, unless the contestant has a `prepare` or `own_seconds`. Logs a warning if
// `drift` exceeds kDriftLimit and warns_of_drift: ratios are then still valid, absolute times are
// not.
//
// `clock` must outlive the measurer.
std::unique_ptr<Measurer> make_measurer(const Clock& clock = steady_clock());

inline constexpr double kShortestSample = 20e-6;  // 500 times the cost of reading the clock
inline constexpr double kDriftLimit = 0.10;

}  // namespace hone::measure
