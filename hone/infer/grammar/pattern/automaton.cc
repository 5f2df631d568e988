// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/pattern/automaton.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "hone/core/check.h"
#include "hone/infer/grammar/pattern/nfa.h"
#include "hone/infer/grammar/schema_rules.h"

namespace hone::infer::grammar {
namespace {

using States = std::vector<std::uint32_t>;  // sorted

[[noreturn]] void refuse_size(std::string_view pointer) {
  refuse_schema(pointer, "The keyword \"pattern\" or \"format\" takes too many states.");
}

void take(std::size_t& left, std::size_t more, std::string_view pointer) {
  if (more > left) refuse_size(pointer);
  left -= more;
}

}  // namespace

// Collects the states of an automaton, and leaves out those from which no end can be reached.
class Automaton::Builder {
 public:
  Builder(const std::array<std::uint8_t, 256>& class_of, std::uint32_t classes,
          std::string_view pointer, PatternBudget& budget)
      : pointer_(pointer), budget_(budget) {
    out_.class_of_ = class_of;
    out_.classes_ = classes;
  }

  State add(bool accepts, bool begins_character) {
    take(budget_.entries, out_.classes_, pointer_);
    out_.next_.resize(out_.next_.size() + out_.classes_, kDead);
    out_.accepts_.push_back(accepts);
    out_.begins_character_.push_back(begins_character);
    return static_cast<State>(out_.accepts_.size() - 1);
  }
  void set(State from, std::uint32_t byte_class, State to) {
    out_.next_[from * out_.classes_ + byte_class] = to;
  }

  Automaton build() {
    const std::vector<State> kept = find_kept();
    Automaton trimmed;
    trimmed.class_of_ = out_.class_of_;
    trimmed.classes_ = out_.classes_;
    if (kept.empty() || kept[0] != 0) return trimmed;
    std::vector<State> renumbered(out_.accepts_.size(), kDead);
    for (std::size_t i = 0; i < kept.size(); ++i) renumbered[kept[i]] = static_cast<State>(i);
    for (const State state : kept) {
      trimmed.accepts_.push_back(out_.accepts_[state]);
      trimmed.begins_character_.push_back(out_.begins_character_[state]);
      for (std::uint32_t c = 0; c < out_.classes_; ++c) {
        const State to = out_.next_[state * out_.classes_ + c];
        trimmed.next_.push_back(to == kDead ? kDead : renumbered[to]);
      }
    }
    return trimmed;
  }

 private:
  std::vector<State> find_kept() const {
    const std::size_t count = out_.accepts_.size();
    const std::vector<std::vector<State>> sources = out_.sources();
    std::vector<std::uint8_t> is_kept = out_.accepts_;
    std::vector<State> open;
    for (State state = 0; state < count; ++state) {
      if (is_kept[state] != 0) open.push_back(state);
    }
    while (!open.empty()) {
      const State state = open.back();
      open.pop_back();
      for (const State source : sources[state]) {
        if (std::exchange(is_kept[source], 1) == 0) open.push_back(source);
      }
    }
    std::vector<State> kept;
    for (State state = 0; state < count; ++state) {
      if (is_kept[state] != 0) kept.push_back(state);
    }
    return kept;
  }

  Automaton out_;
  const std::string_view pointer_;
  PatternBudget& budget_;
};

namespace {

// The sets of states in which a nondeterministic automaton can be.
class SubsetWalk {
 public:
  SubsetWalk(const Nfa& nfa, std::string_view pointer, PatternBudget& budget)
      : nfa_(nfa), pointer_(pointer), budget_(budget) {}

  // Adds what can be reached without a byte.
  States closure(States states, bool at_begin, bool at_end) {
    std::vector<std::uint32_t> open = states;
    std::vector<std::uint8_t>& seen = seen_;
    seen.assign(nfa_.states.size(), 0);
    for (const std::uint32_t state : states) seen[state] = 1;
    while (!open.empty()) {
      const std::uint32_t state = open.back();
      open.pop_back();
      for (const Nfa::Jump& jump : nfa_.states[state].jumps) {
        const bool is_allowed = jump.condition == Nfa::Condition::None ||
                                (jump.condition == Nfa::Condition::Begin ? at_begin : at_end);
        if (!is_allowed || std::exchange(seen[jump.to], 1) != 0) continue;
        states.push_back(jump.to);
        open.push_back(jump.to);
      }
    }
    take(budget_.work, states.size() + nfa_.states.size() / 64, pointer_);
    std::ranges::sort(states);
    return states;
  }

  bool accepts(const States& states, bool at_begin) {
    return std::ranges::binary_search(closure(states, at_begin, true), nfa_.end);
  }

  States after(const States& states, std::uint8_t byte) {
    States out;
    for (const std::uint32_t state : states) {
      for (const Nfa::Edge& edge : nfa_.states[state].edges) {
        if (byte >= edge.low && byte <= edge.high) out.push_back(edge.to);
      }
    }
    take(budget_.work, states.size() / 4, pointer_);
    std::ranges::sort(out);
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out.empty() ? out : closure(std::move(out), false, false);
  }

 private:
  const Nfa& nfa_;
  const std::string_view pointer_;
  PatternBudget& budget_;
  std::vector<std::uint8_t> seen_;
};

}  // namespace

Automaton Automaton::of_regex(const Regex& regex, std::string_view pointer, PatternBudget& budget) {
  const Nfa nfa = make_nfa(regex, pointer);
  std::array<bool, 257> begins{};
  for (const Nfa::State& state : nfa.states) {
    for (const Nfa::Edge& edge : state.edges) begins[edge.low] = begins[edge.high + 1U] = true;
  }
  std::array<std::uint8_t, 256> class_of{};
  std::vector<std::uint8_t> byte_of = {0};  // a byte of each class
  for (std::size_t byte = 1; byte < 256; ++byte) {
    if (begins[byte]) byte_of.push_back(static_cast<std::uint8_t>(byte));
    class_of[byte] = static_cast<std::uint8_t>(byte_of.size() - 1);
  }
  const auto classes = static_cast<std::uint32_t>(byte_of.size());
  Builder builder(class_of, classes, pointer, budget);
  SubsetWalk walk(nfa, pointer, budget);
  std::map<States, State> known;
  const States first = walk.closure({nfa.start}, true, false);
  std::vector<const States*> found = {&first};  // the others are keys of `known`
  builder.add(walk.accepts(first, true), true);
  for (State state = 0; state < found.size(); ++state) {
    for (std::uint32_t c = 0; c < classes; ++c) {
      States after = walk.after(*found[state], byte_of[c]);
      if (after.empty()) continue;
      const auto [at, is_new] = known.emplace(std::move(after), static_cast<State>(found.size()));
      if (is_new) {
        const States& states = at->first;
        builder.add(walk.accepts(states, false), nfa.states[states.front()].begins_character);
        found.push_back(&states);
      }
      builder.set(state, c, at->second);
    }
  }
  return builder.build();
}

Automaton Automaton::intersect(const Automaton& a, const Automaton& b, std::string_view pointer,
                               PatternBudget& budget) {
  std::array<std::uint8_t, 256> class_of{};
  std::map<std::pair<std::uint8_t, std::uint8_t>, std::uint8_t> pairs;
  std::vector<std::uint8_t> byte_of;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto [at, is_new] = pairs.emplace(std::pair(a.class_of_[byte], b.class_of_[byte]),
                                            static_cast<std::uint8_t>(pairs.size()));
    if (is_new) byte_of.push_back(static_cast<std::uint8_t>(byte));
    class_of[byte] = at->second;
  }
  const auto classes = static_cast<std::uint32_t>(byte_of.size());
  Builder builder(class_of, classes, pointer, budget);
  if (a.is_empty() || b.is_empty()) return builder.build();
  std::map<std::pair<State, State>, State> known = {{{0, 0}, 0}};
  std::vector<std::pair<State, State>> found = {{0, 0}};
  const auto add = [&](State in_a, State in_b) {
    return builder.add(a.accepts(in_a) && b.accepts(in_b), a.begins_character_[in_a] != 0);
  };
  add(0, 0);
  for (State state = 0; state < found.size(); ++state) {
    for (std::uint32_t c = 0; c < classes; ++c) {
      const State in_a = a.next(found[state].first, byte_of[c]);
      const State in_b = b.next(found[state].second, byte_of[c]);
      if (in_a == kDead || in_b == kDead) continue;
      const auto [at, is_new] =
          known.emplace(std::pair(in_a, in_b), static_cast<State>(found.size()));
      if (is_new) {
        add(in_a, in_b);
        found.emplace_back(in_a, in_b);
      }
      builder.set(state, c, at->second);
    }
  }
  return builder.build();
}

// Counts up to `low`; beyond, all counts are one.
Automaton Automaton::at_least(std::uint32_t low, std::string_view pointer,
                              PatternBudget& budget) const {
  Builder builder(class_of_, classes_, pointer, budget);
  if (is_empty()) return builder.build();
  std::array<std::uint8_t, 256> byte_of{};
  for (std::size_t byte = 256; byte-- > 0;) {
    byte_of[class_of_[byte]] = static_cast<std::uint8_t>(byte);
  }
  std::map<std::pair<State, std::uint32_t>, State> known = {{{0, 0}, 0}};
  std::vector<std::pair<State, std::uint32_t>> found = {{0, 0}};
  const auto add = [&](State state, std::uint32_t count) {
    return builder.add(accepts(state) && count >= low, begins_character(state));
  };
  add(0, 0);
  for (State state = 0; state < found.size(); ++state) {
    for (std::uint32_t c = 0; c < classes_; ++c) {
      const auto [from, count] = found[state];
      const State to = next(from, byte_of[c]);
      if (to == kDead) continue;
      const std::uint32_t after = std::min(low, count + (begins_character(to) ? 1 : 0));
      const auto [at, is_new] =
          known.emplace(std::pair(to, after), static_cast<State>(found.size()));
      if (is_new) {
        add(to, after);
        found.emplace_back(to, after);
      }
      builder.set(state, c, at->second);
    }
  }
  return builder.build();
}

std::vector<std::vector<Automaton::State>> Automaton::sources() const {
  std::vector<std::vector<State>> out(accepts_.size());
  for (State state = 0; state < accepts_.size(); ++state) {
    for (std::uint32_t c = 0; c < classes_; ++c) {
      const State to = next_[state * classes_ + c];
      if (to != kDead && (out[to].empty() || out[to].back() != state)) out[to].push_back(state);
    }
  }
  return out;
}

std::vector<std::uint32_t> Automaton::missing_characters() const {
  std::vector<std::uint32_t> missing(accepts_.size(), kNoMost);
  for (State state = 0; state < missing.size(); ++state) {
    if (accepts(state)) missing[state] = 0;
  }
  // Backward from the ends: states at a distance of no further character first.
  const std::vector<std::vector<State>> before = sources();
  std::deque<State> open;
  for (State state = 0; state < missing.size(); ++state) {
    if (accepts(state)) open.push_back(state);
  }
  while (!open.empty()) {
    const State to = open.front();
    open.pop_front();
    const std::uint32_t count = missing[to] + (begins_character(to) ? 1 : 0);
    for (const State source : before[to]) {
      if (count >= missing[source]) continue;
      missing[source] = count;
      begins_character(to) ? open.push_back(source) : open.push_front(source);
    }
  }
  return missing;
}

bool Automaton::matches(std::string_view spelled) const {
  State state = start();
  for (const char c : spelled) {
    if (state == kDead) return false;
    state = next(state, static_cast<std::uint8_t>(c));
  }
  return state != kDead && accepts(state);
}

}  // namespace hone::infer::grammar
