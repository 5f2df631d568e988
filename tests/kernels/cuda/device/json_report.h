// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace hone::test {

// One JSON object on a line of stdout: {"measure": name, "transport": …, key: number, …}.
void print_measure(std::string_view name, std::string_view transport,
                   std::initializer_list<std::pair<const char*, double>> numbers);

}  // namespace hone::test
