// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "hone/infer/grammar/pattern/regex.h"

namespace hone::infer::grammar {

// A nondeterministic automaton over the bytes of spelled strings.
struct Nfa {
  struct Edge {
    std::uint8_t low = 0, high = 0;
    std::uint32_t to = 0;
  };
  enum class Condition : std::uint8_t { None, Begin, End };
  struct Jump {
    Condition condition = Condition::None;  // where the jump is allowed
    std::uint32_t to = 0;
  };
  struct State {
    std::vector<Edge> edges{};
    std::vector<Jump> jumps{};
    bool begins_character = true;
  };
  std::vector<State> states{};
  std::uint32_t start = 0, end = 0;
};

// The strings in which the expression is found. Throws Error{Unsupported} that names `pointer` if
// it takes too many states.
Nfa make_nfa(const Regex& regex, std::string_view pointer);

}  // namespace hone::infer::grammar
