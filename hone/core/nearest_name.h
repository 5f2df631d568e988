// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace hone {

// The known name with the least edit distance (Levenshtein) to `word`, first wins; empty when there
// are none. For "unknown key 'lerning_rate', did you mean 'learning_rate'?".
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> known);

}  // namespace hone
