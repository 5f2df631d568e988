// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"

namespace hone {

// Returns the known name that `word` probably misspells, or "" if there is none. It is the first
// name with the smallest edit distance, if that is at most a third of the longer word's letters.
// Edits insert, delete or replace a letter, or swap it with its neighbor. A word without dots is
// also compared with the part after a name's last dot: "steps" finds "trainer.steps". If no name is
// near, a word without dots finds the first name without dots that is its prefix or has it as a
// prefix. The prefix must have three letters or more: "temperature" finds "temp".
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> known);

// Returns the `count` known names with the smallest edit distances from the first 200 bytes of
// `word`, nearest first. A word without dots is also compared with each part of a name between
// dots.
std::vector<std::string_view> nearest_names(std::string_view word,
                                            std::span<const std::string_view> known, Index count);

// Returns the sentence of an error: "Unknown <kind> 'trian'. Did you mean 'train'?", or a list of
// all known names if none is near.
std::string describe_unknown(std::string_view kind, std::string_view word,
                             std::span<const std::string_view> known);

}  // namespace hone
