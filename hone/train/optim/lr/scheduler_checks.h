// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "hone/core/check.h"

namespace hone::optim {

// Checks of constructor options. They throw Error{InvalidArgument} that names scheduler and option.

Index check_count(std::string_view kind, std::string_view option, Index value, Index least);
// Checks for a finite number that is at least `least`.
double check_number(std::string_view kind, std::string_view option, double value, double least = 0);
// Checks that milestones increase and that the first one is at least 1.
void check_milestones(std::string_view kind, std::span<const Index> milestones);

}  // namespace hone::optim
