// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "hone/core/measurer.h"

namespace hone::app {

// The timing harness of tune/measure with the steady clock.
std::unique_ptr<Measurer> make_measurer();

}  // namespace hone::app
