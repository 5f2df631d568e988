// SPDX-License-Identifier: Apache-2.0
#include "hone/data/attribute_grammar.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "hone/core/check.h"
#include "hone/data/grammar_compiler.h"
#include "hone/data/sentence.h"

namespace hone::data {
namespace {

constexpr std::uint32_t bit(int slot) { return std::uint32_t{1} << slot; }

}  // namespace

AttributeGrammar::AttributeGrammar(std::string_view source, std::string_view terminator) {
  GrammarSource parsed = parse_grammar(source);
  HONE_CHECK(parsed.slots.size() <= kMaxSlots, "grammar", concat("at most ", kMaxSlots, " slots"),
             parsed.slots.size());
  for (const GrammarDomain& domain : parsed.domains) {
    HONE_CHECK(!domain.values.empty() && domain.values.size() <= 127, "grammar",
               concat("1 to 127 values in domain ", domain.name), domain.values.size());
  }
  start_ = GrammarCompiler(parsed, nodes_).compile_start(terminator);
  domains_ = std::move(parsed.domains);
  slots_ = std::move(parsed.slots);
  check_slots_are_drawn_once();
  find_live_slots();
  find_sentence_starts();
}

AttributeGrammar::Configuration AttributeGrammar::start() const {
  Configuration configuration;
  configuration.position.node = start_;
  return configuration;
}

bool AttributeGrammar::is_end(const Configuration& configuration) const {
  return nodes_[configuration.position.node].kind == NodeKind::Accept;
}

bool AttributeGrammar::allows(int slot, int value, const State& state) const {
  const auto& forms = domain_of(slot).values[value];
  for (const GrammarFilter& filter : slots_[slot].filters) {
    const int other = state[filter.other_slot];
    if (other == kUnbound) continue;
    const std::string& key = domain_of(filter.other_slot).values[other][0];
    if ((forms[filter.form] == key) != filter.equal) return false;
  }
  return true;
}

double AttributeGrammar::allowed_weight(int slot, const State& state) const {
  const auto& weights = domain_of(slot).weights;
  double total = 0;
  for (std::size_t value = 0; value < weights.size(); ++value) {
    if (allows(slot, static_cast<int>(value), state)) total += weights[value];
  }
  return total;
}

std::string AttributeGrammar::spelling(const Node& node, int value) const {
  std::string text = domain_of(node.slot).values[value][node.form];
  if (node.capital) {
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  }
  return text;
}

std::string AttributeGrammar::generate(PhiloxStream& random) const {
  std::string out;
  State state = unbound_state();
  std::int32_t at = start_;
  for (;;) {
    const Node& node = nodes_[at];
    switch (node.kind) {
      case NodeKind::Accept:
        return out;
      case NodeKind::Text:
        out += node.text;
        break;
      case NodeKind::Switch:
        at = node.targets[state[node.slot]];
        continue;
      case NodeKind::Choice: {
        double left = random.uniform_double();
        std::size_t pick = 0;
        while (pick + 1 < node.targets.size() && left >= node.probabilities[pick]) {
          left -= node.probabilities[pick++];
        }
        at = node.targets[pick];
        continue;
      }
      case NodeKind::Draw:
        state[node.slot] = draw_value(node.slot, state, random);
        [[fallthrough]];
      case NodeKind::Use:
        out += spelling(node, state[node.slot]);
        break;
    }
    at = node.targets[0];
  }
}

std::int8_t AttributeGrammar::draw_value(int slot, const State& state, PhiloxStream& random) const {
  const auto& weights = domain_of(slot).weights;
  double left = random.uniform_double() * allowed_weight(slot, state);
  std::int8_t pick = kUnbound;
  for (std::size_t value = 0; value < weights.size(); ++value) {
    if (!allows(slot, static_cast<int>(value), state)) continue;
    pick = static_cast<std::int8_t>(value);
    if (left < weights[value]) break;
    left -= weights[value];
  }
  HONE_REQUIRE(pick != kUnbound, "grammar",
               concat("The filters of slot ", slots_[slot].name, " allow no value."));
  return pick;
}

Index AttributeGrammar::advance(const Configuration& from, std::string_view text,
                                Visit visit) const {
  Reading reading{text, 0, visit};
  walk(from, 0, reading);
  return reading.furthest;
}

bool AttributeGrammar::match(std::string_view spelled, Configuration& at, Index& done,
                             Reading& reading) const {
  const std::string_view wanted = spelled.substr(at.position.offset);
  const std::string_view given = reading.text.substr(done, wanted.size());
  std::size_t same = 0;
  while (same < given.size() && given[same] == wanted[same]) ++same;
  done += static_cast<Index>(same);
  reading.furthest = std::max(reading.furthest, done);
  if (same < given.size()) return false;
  if (same < wanted.size()) {
    at.position.offset += static_cast<std::int32_t>(same);
  } else {
    at.position = {nodes_[at.position.node].targets[0], 0};
  }
  return true;
}

void AttributeGrammar::walk(Configuration at, Index done, Reading& reading) const {
  while (done < static_cast<Index>(reading.text.size())) {
    const Node& node = nodes_[at.position.node];
    switch (node.kind) {
      case NodeKind::Accept:
        return;
      case NodeKind::Text:
        if (!match(node.text, at, done, reading)) return;
        break;
      case NodeKind::Choice:
        for (std::size_t i = 0; i < node.targets.size(); ++i) {
          Configuration branch = at;
          branch.position.node = node.targets[i];
          branch.probability *= node.probabilities[i];
          walk(branch, done, reading);
        }
        return;
      case NodeKind::Draw:
        if (at.position.offset == 0) return walk_draw(at, done, reading);
        if (!match(spelling(node, at.state[node.slot]), at, done, reading)) return;
        break;
      case NodeKind::Use:
        if (at.state[node.slot] == kUnbound) return walk_values(at, done, reading);
        if (!match(spelling(node, at.state[node.slot]), at, done, reading)) return;
        break;
      case NodeKind::Switch:
        if (at.state[node.slot] == kUnbound) return walk_values(at, done, reading);
        at.position.node = node.targets[at.state[node.slot]];
        break;
    }
  }
  reading.visit(at);
}

void AttributeGrammar::walk_draw(const Configuration& at, Index done, Reading& reading) const {
  const Node& node = nodes_[at.position.node];
  const auto& weights = domain_of(node.slot).weights;
  const double total = allowed_weight(node.slot, at.state);
  for (std::size_t value = 0; value < weights.size(); ++value) {
    if (!allows(node.slot, static_cast<int>(value), at.state)) continue;
    Configuration branch = at;
    branch.state[node.slot] = static_cast<std::int8_t>(value);
    branch.probability *= weights[value] / total;
    Index after = done;
    if (match(spelling(node, static_cast<int>(value)), branch, after, reading)) {
      walk(branch, after, reading);
    }
  }
}

void AttributeGrammar::walk_values(const Configuration& at, Index done, Reading& reading) const {
  const int slot = nodes_[at.position.node].slot;
  for (std::size_t value = 0; value < domain_of(slot).values.size(); ++value) {
    if (!allows(slot, static_cast<int>(value), at.state)) continue;
    Configuration branch = at;
    branch.state[slot] = static_cast<std::int8_t>(value);
    walk(branch, done, reading);
  }
}

// Computes which sets of drawn slots reach each node, forward over the graph (targets have smaller
// numbers).
void AttributeGrammar::check_slots_are_drawn_once() const {
  std::vector<std::set<std::uint32_t>> drawn(nodes_.size());
  drawn[start_].insert(0);
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = nodes_[i];
    for (std::uint32_t mask : drawn[i]) {
      check_slot(node, mask);
      if (node.kind == NodeKind::Draw) mask |= bit(node.slot);
      for (std::int32_t target : node.targets) drawn[target].insert(mask);
    }
  }
}

void AttributeGrammar::check_slot(const Node& node, std::uint32_t drawn) const {
  const std::string name = slots_.empty() ? "" : slots_[node.slot].name;
  const bool is_drawn = (drawn & bit(node.slot)) != 0;
  if (node.kind == NodeKind::Use || node.kind == NodeKind::Switch) {
    HONE_REQUIRE(is_drawn, "grammar",
                 concat("On some path, slot ", name, " is used before it is drawn."));
  }
  if (node.kind != NodeKind::Draw) return;
  HONE_REQUIRE(!is_drawn, "grammar", concat("On some path, slot ", name, " is drawn twice."));
  for (const GrammarFilter& filter : slots_[node.slot].filters) {
    HONE_REQUIRE(filter.equal || (drawn & bit(filter.other_slot)) != 0, "grammar",
                 concat("On some path, slot ", name, " is drawn before slot ",
                        slots_[filter.other_slot].name, ", which it must differ from."));
  }
}

void AttributeGrammar::find_live_slots() {
  live_.assign(nodes_.size(), 0);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    for (std::int32_t target : node.targets) live_[i] |= live_[target];
    if (node.kind == NodeKind::Switch) live_[i] |= bit(node.slot);
    if (node.kind != NodeKind::Draw) continue;
    live_[i] &= ~bit(node.slot);
    for (const GrammarFilter& filter : slots_[node.slot].filters) {
      live_[i] |= bit(filter.other_slot);
    }
  }
}

double AttributeGrammar::entropy_bits() const {
  EntropyMemo memo;
  return entropy_from(start_, unbound_state(), memo);
}

// H(node | state) = H(choice here) + sum over outcomes of p * H(next | state after it). Depends
// only on the live slots.
double AttributeGrammar::entropy_from(std::int32_t at, State state, EntropyMemo& memo) const {
  while (nodes_[at].kind == NodeKind::Text || nodes_[at].kind == NodeKind::Use) {
    at = nodes_[at].targets[0];
  }
  const Node& node = nodes_[at];
  if (node.kind == NodeKind::Accept) return 0;
  if (node.kind == NodeKind::Switch) {
    return entropy_from(node.targets[state[node.slot]], state, memo);
  }
  std::string key(reinterpret_cast<const char*>(&at), sizeof at);
  for (int slot = 0; slot < kMaxSlots; ++slot) {
    if ((live_[at] & bit(slot)) == 0) state[slot] = kUnbound;
    key.push_back(static_cast<char>(state[slot]));
  }
  if (const auto found = memo.find(key); found != memo.end()) return found->second;
  double bits = 0;
  const auto add_outcome = [&](double probability, std::int32_t target, const State& after) {
    bits += probability * (entropy_from(target, after, memo) - std::log2(probability));
  };
  if (node.kind == NodeKind::Choice) {
    for (std::size_t i = 0; i < node.targets.size(); ++i) {
      add_outcome(node.probabilities[i], node.targets[i], state);
    }
  } else {
    const auto& weights = domain_of(node.slot).weights;
    const double total = allowed_weight(node.slot, state);
    for (std::size_t value = 0; value < weights.size(); ++value) {
      if (!allows(node.slot, static_cast<int>(value), state)) continue;
      State after = state;
      after[node.slot] = static_cast<std::int8_t>(value);
      add_outcome(weights[value] / total, node.targets[0], after);
    }
  }
  memo.emplace(std::move(key), bits);
  return bits;
}

// Over-approximates: tracks quotes through every spelling, but ignores what follows the sentence
// end.
void AttributeGrammar::find_sentence_starts() {
  std::vector<std::array<bool, 2>> reached(nodes_.size());  // [quote open]
  reached[start_][0] = true;
  sentence_starts_.push_back({start_, 0});
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = nodes_[i];
    for (int open = 0; open < 2; ++open) {
      if (!reached[i][open]) continue;
      bool quoted = open != 0;
      for (std::size_t k = 0; node.kind == NodeKind::Text && k < node.text.size(); ++k) {
        if (node.text[k] == '"') quoted = !quoted;
        if (quoted || !ends_sentence(std::string_view(node.text).substr(0, k + 1))) continue;
        const bool is_last = k + 1 == node.text.size();
        sentence_starts_.push_back(
            is_last ? Position{node.targets[0], 0}
                    : Position{static_cast<std::int32_t>(i), static_cast<std::int32_t>(k + 1)});
      }
      for (std::int32_t target : node.targets) reached[target][quoted] = true;
    }
  }
  const auto order = [](Position a, Position b) {
    return a.node != b.node ? a.node > b.node : a.offset < b.offset;
  };
  std::sort(sentence_starts_.begin(), sentence_starts_.end(), order);
  sentence_starts_.erase(std::unique(sentence_starts_.begin(), sentence_starts_.end()),
                         sentence_starts_.end());
}

std::vector<AttributeGrammar::Position> AttributeGrammar::sentence_starts_after(
    std::int32_t node) const {
  std::vector<bool> reached(nodes_.size());
  reached[node] = true;
  for (std::int32_t i = node; i >= 0; --i) {
    if (!reached[i]) continue;
    for (std::int32_t target : nodes_[i].targets) reached[target] = true;
  }
  std::vector<Position> starts;
  for (const Position& start : sentence_starts_) {
    if (reached[start.node]) starts.push_back(start);
  }
  return starts;
}

std::vector<std::string> AttributeGrammar::words() const {
  std::set<std::string> words;
  const auto add_words = [&](std::string_view text) {
    std::string word;
    for (char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (std::isalpha(byte)) {
        word.push_back(static_cast<char>(std::tolower(byte)));
      } else if (!word.empty()) {
        words.insert(std::exchange(word, {}));
      }
    }
    if (!word.empty()) words.insert(word);
  };
  for (const Node& node : nodes_) {
    if (node.kind == NodeKind::Text) add_words(node.text);
    if (node.kind != NodeKind::Use && node.kind != NodeKind::Draw) continue;
    for (const auto& value : domain_of(node.slot).values) add_words(value[node.form]);
  }
  return {words.begin(), words.end()};
}

}  // namespace hone::data
