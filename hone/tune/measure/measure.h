// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "hone/core/clock.h"
#include "hone/core/measurer.h"

namespace hone::tune {

// The timing harness. Every round runs each contestant once, and each round starts with the next
// one, so that a change of the machine's speed meets all of them. Every sample is kept. Measuring
// stops when the 95 % interval of every contestant's median is within +-half_width of that median,
// or at max_samples, or after max_seconds, but not before min_samples.
//
// A sample shorter than kShortestSample (seen in the warm-up) becomes the mean over as many calls
// as fill that time, unless the contestant has a `prepare` or `own_seconds`. Logs a warning when
// `drift` exceeds kDriftLimit: ratios still hold then, absolute times do not.
//
// `clock` must outlive the measurer.
std::unique_ptr<Measurer> make_measurer(const Clock& clock);

inline constexpr double kShortestSample = 20e-6;  // 500 times the cost of reading the clock
inline constexpr double kDriftLimit = 0.10;

}  // namespace hone::tune
