// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/app/eval_lm.h"

namespace hone::app {

// Formats the results of an evaluation as readable text, with names and units.
std::string to_table(const EvalResult& result);

}  // namespace hone::app
