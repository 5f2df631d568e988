// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <limits>

#include "hone/core/index.h"

namespace hone::cli {

// Validators of an option's text, each with a short error message.

// A whole number from `low` to `high`.
CLI::Validator whole_number(Index low, Index high = std::numeric_limits<Index>::max());
// A finite number above 0.
CLI::Validator positive_number();
// A text of at least one character.
CLI::Validator not_empty();
// A finite number that an fp32 can hold.
CLI::Validator finite_number();

}  // namespace hone::cli
