// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <limits>
#include <string>
#include <vector>

#include "hone/core/index.h"

namespace hone::cli {

// Validators of an option's text, each with a short error message.

// A whole number from `low` to `high`.
CLI::Validator whole_number(Index low, Index high = std::numeric_limits<Index>::max());
// A finite number above 0.
CLI::Validator positive_number();
// A number from `low` to `high`.
CLI::Validator number_from(double low, double high);
// A text of at least one character; `what` names it in the error.
CLI::Validator not_empty(std::string what = "a path");

// Throws Error{InvalidArgument} with this sentence for the first of these options that was given.
void refuse_options(const std::vector<CLI::Option*>& options, const std::string& reason);

}  // namespace hone::cli
