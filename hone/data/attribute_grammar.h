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

// A weighted context-free grammar whose rules share attributes ("slots"). A slot is drawn once, at
// its first mention, and every later mention spells the same value. The grammar is compiled into an
// acyclic graph of nodes; a derivation is a path from start() to the Accept node.
// docs/story-grammar.md defines the notation.
class AttributeGrammar {
 public:
  static constexpr int kMaxSlots = 16;
  // The value of each slot; kUnbound before it is drawn.
  using State = std::array<std::int8_t, kMaxSlots>;
  static constexpr std::int8_t kUnbound = -1;
  static constexpr State unbound_state() {
    State state{};
    state.fill(kUnbound);
    return state;
  }

  // A position in a derivation: `offset` bytes of the node's text have been spelled.
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

  // `source` is in the notation of docs/story-grammar.md. Every text ends with `terminator`. Throws
  // Error{InvalidArgument}, with the line where possible, for syntax errors, unknown names,
  // recursive or unused rules, and slots that some path uses before drawing them or draws twice.
  explicit AttributeGrammar(std::string_view source, std::string_view terminator = "");

  Configuration start() const;
  bool is_end(const Configuration& configuration) const;

  // Draws one text.
  std::string generate(PhiloxStream& random) const;

  // Follows every way to spell exactly `text` starting at `from`. Calls `visit` with the end of
  // each, whose probability is from.probability times that of the choices made. Returns how many
  // bytes of `text` the longest attempt matched. Slots that are not drawn yet are drawn where
  // needed, so that a single sentence can be read from the unbound state (the probabilities are
  // then meaningless).
  Index advance(const Configuration& from, std::string_view text, Visit visit) const;

  // The entropy of one text in bits, in closed form: the expected sum of the entropies of all
  // choices.
  double entropy_bits() const;

  // If a text has two derivations, returns the text from where they part to where they meet again.
  // Searches all pairs of derivations, so an empty result is a proof.
  std::optional<std::string> find_ambiguity() const;

  // The positions right after a sentence end (with quotes closed) that are reachable from the
  // start, or from `node`.
  const std::vector<Position>& sentence_starts() const { return sentence_starts_; }
  std::vector<Position> sentence_starts_after(std::int32_t node) const;

  // The distinct lower-case words that the grammar can spell.
  std::vector<std::string> words() const;

 private:
  friend class GrammarCompiler;
  friend class AmbiguitySearch;

  enum class NodeKind : std::uint8_t { Text, Use, Draw, Choice, Switch, Accept };
  // The targets of a node have smaller numbers than the node.
  struct Node {
    NodeKind kind = NodeKind::Accept;
    std::string text;                   // Text
    int slot = 0, form = 0;             // Use, Draw, Switch
    bool capital = false;               // Use, Draw: first letter upper-case
    std::vector<std::int32_t> targets;  // Choice: per alternative; Switch: per value; else one
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
