// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hone {

// The known name that `word` was probably meant to be: the one with the least edit distance
// (Levenshtein), first wins, if at most a third of the longer one's letters differ; else empty. A
// word without dots is also compared with what follows a name's last dot: "steps" finds
// "trainer.steps". For "unknown key 'lerning_rate', did you mean 'learning_rate'?".
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> known);

// "a known <kind>, nearest is 'train'", or all of them where none is near: what an error wanted.
std::string describe_known(std::string_view kind, std::string_view word,
                           std::span<const std::string_view> known);

}  // namespace hone
