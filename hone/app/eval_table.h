// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/app/eval_lm.h"

namespace hone::app {

// The figures of an evaluation with their names and units, for people.
std::string to_table(const EvalResult& result);

}  // namespace hone::app
