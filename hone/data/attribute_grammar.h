// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hone/core/function_ref.h"
#include "hone/core/index.h"
#include "hone/core/philox.h"
#include "hone/data/grammar_source.h"

namespace hone::data {

// A weighted context-free grammar whose rules share attributes ("slots"): a slot is drawn once,
// where the text first names it, and every later mention spells the same value. It is compiled into
// one acyclic graph of nodes; a derivation is a path from start() to the Accept node. Notation:
// docs/story-grammar.md.
class AttributeGrammar {
 public:
  static constexpr int kMaxSlots = 16;
  // Value of each slot, kUnbound before it is drawn.
  using State = std::array<std::int8_t, kMaxSlots>;
  static constexpr std::int8_t kUnbound = -1;
  static constexpr State unbound_state() {
    State state{};
    state.fill(kUnbound);
    return state;
  }

  // A place inside a derivation: `offset` bytes of node's text are already spelled.
  struct Position {
    std::int32_t node = 0;
    std::int32_t offset = 0;
    friend bool operator==(Position, Position) = default;
  };
  struct Configuration {
    Position position;
    State state = unbound_state();
    double probability = 1;
  };
  using Visit = FunctionRef<void(const Configuration&)>;

  // `source` in the notation of docs/story-grammar.md. Error{InvalidArgument} names the line:
  // syntax, unknown names, recursive or unused rules, a slot that some path uses before it is drawn
  // or draws twice. Every text ends with `terminator`.
  explicit AttributeGrammar(std::string_view source, std::string_view terminator = "");

  Configuration start() const;
  bool is_end(const Configuration& configuration) const;

  // One draw from the grammar.
  std::string generate(PhiloxStream& random) const;

  // Every way to spell exactly `text` from `from` on: calls `visit` with where each way ends, with
  // from.probability times the probability of the choices made. Returns how many bytes of `text`
  // the longest attempt matched. Slots not yet drawn are drawn where they are needed, so that a
  // lone sentence can be read from the unbound state (probabilities then mean nothing).
  Index advance(const Configuration& from, std::string_view text, Visit visit) const;

  // Entropy of one draw in bits, in closed form: expected sum of the entropies of all choices.
  double entropy_bits() const;

  // Two derivations of one text, if there are any: the text up to where they meet again. Proof by
  // exhausting pairs of derivations; needs no sample.
  std::optional<std::string> find_ambiguity() const;

  // Positions right after a sentence end (quotes closed) that can be reached from the start, and
  // those that can be reached from `node`.
  const std::vector<Position>& sentence_starts() const { return sentence_starts_; }
  std::vector<Position> sentence_starts_after(std::int32_t node) const;

  // Distinct lower-case words the grammar can spell.
  std::vector<std::string> words() const;

 private:
  friend class GrammarCompiler;
  friend class AmbiguitySearch;

  enum class NodeKind : std::uint8_t { Text, Use, Draw, Choice, Switch, Accept };
  // Targets have smaller numbers than the node itself.
  struct Node {
    NodeKind kind = NodeKind::Accept;
    std::string text;                   // Text
    int slot = 0, form = 0;             // Use, Draw, Switch
    bool capital = false;               // Use, Draw: first letter upper-case
    std::vector<std::int32_t> targets;  // one; Choice: per alternative; Switch: per value
    std::vector<double> probabilities;  // Choice
  };
  using EntropyMemo = std::unordered_map<std::string, double>;

  const GrammarDomain& domain_of(int slot) const { return domains_[slots_[slot].domain]; }
  bool allows(int slot, int value, const State& state) const;
  double allowed_weight(int slot, const State& state) const;
  std::string spelling(const Node& node, int value) const;
  std::int8_t draw_value(int slot, const State& state, PhiloxStream& random) const;
  struct Reading {
    std::string_view text;
    Index furthest;
    Visit visit;
  };
  bool match(std::string_view spelled, Configuration& at, Index& done, Reading& reading) const;
  void walk(Configuration at, Index done, Reading& reading) const;
  void walk_draw(const Configuration& at, Index done, Reading& reading) const;
  void walk_values(const Configuration& at, Index done, Reading& reading) const;
  double entropy_from(std::int32_t node, State state, EntropyMemo& memo) const;
  void find_live_slots();
  void check_slots_are_drawn_once() const;
  void check_slot(const Node& node, std::uint32_t drawn) const;
  void find_sentence_starts();

  std::vector<GrammarDomain> domains_;
  std::vector<GrammarSlot> slots_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> live_;  // per node: slots that later choices depend on
  std::vector<Position> sentence_starts_;
  std::int32_t start_ = 0;
};

}  // namespace hone::data
