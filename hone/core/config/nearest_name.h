// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"

namespace hone {

// The known name that `word` is probably a typo of: the first one with the smallest edit distance
// (letters put in, left out, replaced, or swapped with their neighbors), where that is at most a
// third of the longer word's letters. A word without dots is also compared with the part after a
// name's last dot, so that "steps" finds "trainer.steps". If none is near, a word without dots
// finds the first name without dots that begins the word or is begun by it, by three letters or
// more: "temperature" finds "temp". Otherwise empty.
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> known);

// The `count` known names with the smallest edit distances from the first 200 bytes of `word`, the
// nearest one first. A word without dots is also compared with each part of a name between dots.
std::vector<std::string_view> nearest_names(std::string_view word,
                                            std::span<const std::string_view> known, Index count);

// The sentence of an error: "Unknown <kind> 'trian'. Did you mean 'train'?", or a list of all known
// names if none is near.
std::string describe_unknown(std::string_view kind, std::string_view word,
                             std::span<const std::string_view> known);

}  // namespace hone
