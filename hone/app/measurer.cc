// SPDX-License-Identifier: Apache-2.0
#include "hone/app/measurer.h"

#include "hone/core/clock.h"
#include "hone/tune/measure/measure.h"

namespace hone::app {

std::unique_ptr<Measurer> make_measurer() { return tune::make_measurer(steady_clock()); }

}  // namespace hone::app
