// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "hone/infer/grammar/pattern/regex.h"

namespace hone::infer::grammar {

// What the patterns of one schema may take together.
struct PatternBudget {
  std::size_t work = 20'000'000;    // states that constructions look at
  std::size_t entries = 2'000'000;  // of tables: 8 MB
};

// A deterministic automaton over the bytes between the quotes of a JSON string in which each
// character has one spelling (next_in_plain_character()). From every state, an end can be reached.
// Immutable.
class Automaton {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0xffffffff;

  // The strings in which the expression is found. Throws Error{Unsupported} that names `pointer`
  // for one that takes more than the budget has, which it lowers.
  static Automaton of_regex(const Regex& regex, std::string_view pointer, PatternBudget& budget);
  // The strings of both.
  static Automaton intersect(const Automaton& a, const Automaton& b, std::string_view pointer,
                             PatternBudget& budget);
  // Only strings of at least `low` characters.
  Automaton at_least(std::uint32_t low, std::string_view pointer, PatternBudget& budget) const;
  // Returns, by state, the smallest number of characters that lead to an end, counting the one
  // that has begun.
  std::vector<std::uint32_t> missing_characters() const;

  bool is_empty() const { return accepts_.empty(); }
  State start() const { return is_empty() ? kDead : 0; }
  State next(State state, std::uint8_t byte) const {
    return next_[state * classes_ + class_of_[byte]];
  }
  bool accepts(State state) const { return accepts_[state] != 0; }
  // Whether the state is between two characters, where the string may end.
  bool begins_character(State state) const { return begins_character_[state] != 0; }
  bool matches(std::string_view spelled) const;
  std::size_t memory_bytes() const { return next_.size() * sizeof(State) + 2 * accepts_.size(); }

 private:
  class Builder;
  // The states that lead to each state, each once.
  std::vector<std::vector<State>> sources() const;

  std::array<std::uint8_t, 256> class_of_{};  // bytes that lead from each state to the same one
  std::uint32_t classes_ = 1;
  std::vector<State> next_{};  // [state][class]
  std::vector<std::uint8_t> accepts_{};
  std::vector<std::uint8_t> begins_character_{};  // whether a state is between two characters
};

}  // namespace hone::infer::grammar
