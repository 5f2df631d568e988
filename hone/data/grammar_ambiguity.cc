// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "hone/data/attribute_grammar.h"

namespace hone::data {

// Explores pairs of derivations that have spelled the same text. Slot values are forgotten after
// they are spelled (a mention may spell any value), which can only add pairs: if no pair of
// different paths meets again, no text has two derivations. One fact is kept: slots declared
// different never spell the same key, provided that both were drawn before the paths parted.
class AmbiguitySearch {
 public:
  explicit AmbiguitySearch(const AttributeGrammar& grammar)
      : grammar_(grammar), closures_(grammar.nodes_.size()), drawn_(grammar.nodes_.size()) {}

  std::optional<std::string> run() {
    find_drawn();
    for (std::size_t i = grammar_.nodes_.size(); i-- > 0 && !witness_;) {
      part_at(static_cast<std::int32_t>(i));
      follow();
    }
    return witness_;
  }

 private:
  using NodeKind = AttributeGrammar::NodeKind;
  // One spelling of a node, of which `offset` bytes are done.
  struct Point {
    std::int32_t node, spelling, offset;
    auto key() const { return std::make_tuple(node, spelling, offset); }
  };
  struct Pair {
    Point a, b;
    std::uint32_t drawn;  // slots drawn on every path to where the two parted
    std::string text;     // spelled since then
  };

  bool spells(std::int32_t node) const {
    const NodeKind kind = grammar_.nodes_[node].kind;
    return kind == NodeKind::Text || kind == NodeKind::Use || kind == NodeKind::Draw;
  }

  // The texts of a node: one per value for a draw (each is another derivation), one per distinct
  // spelling for a mention (whose value is known).
  const std::vector<std::string>& spellings(std::int32_t at) {
    auto& texts = spellings_[at];
    if (!texts.empty()) return texts;
    const auto& node = grammar_.nodes_[at];
    if (node.kind == NodeKind::Text) return texts = {node.text};
    const auto& values = grammar_.domain_of(node.slot).values;
    for (std::size_t value = 0; value < values.size(); ++value) {
      texts.push_back(grammar_.spelling(node, static_cast<int>(value)));
    }
    if (node.kind == NodeKind::Use) {
      std::sort(texts.begin(), texts.end());
      texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
    }
    return texts;
  }

  // The points from which the next byte may come.
  const std::vector<Point>& closure(std::int32_t at) {
    auto& points = closures_[at];
    if (points) return *points;
    std::vector<Point> found;
    const auto& node = grammar_.nodes_[at];
    if (node.kind == NodeKind::Accept) {
      found.push_back({at, 0, 0});
    } else if (spells(at)) {
      for (std::size_t i = 0; i < spellings(at).size(); ++i) {
        found.push_back({at, static_cast<std::int32_t>(i), 0});
      }
    } else {
      std::vector<std::int32_t> targets = node.targets;
      if (node.kind == NodeKind::Switch) {  // The slot's value decides, so this is not a choice.
        std::sort(targets.begin(), targets.end());
        targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
      }
      for (std::int32_t target : targets) {
        const auto& more = closure(target);
        found.insert(found.end(), more.begin(), more.end());
      }
    }
    return *(points = std::move(found));
  }

  // Two derivations part at a choice between alternatives or between drawn values.
  void part_at(std::int32_t at) {
    const auto& node = grammar_.nodes_[at];
    std::vector<std::vector<Point>> branches;
    if (node.kind == NodeKind::Choice) {
      for (std::int32_t target : node.targets) branches.push_back(closure(target));
    } else if (node.kind == NodeKind::Draw) {
      for (const Point& point : closure(at)) branches.push_back({point});
    }
    for (std::size_t i = 0; i < branches.size(); ++i) {
      for (std::size_t j = i + 1; j < branches.size(); ++j) {
        for (const Point& a : branches[i]) {
          for (const Point& b : branches[j]) add({a, b, drawn_[at], ""});
        }
      }
    }
  }

  void add(Pair pair) {
    if (pair.b.key() < pair.a.key()) std::swap(pair.a, pair.b);
    if (pair.a.key() == pair.b.key()) {
      if (!witness_) witness_ = pair.text;
      return;
    }
    if (next_byte(pair.a) != next_byte(pair.b) || excludes(pair)) return;
    const auto key = std::tuple_cat(pair.a.key(), pair.b.key(), std::make_tuple(pair.drawn));
    if (seen_.insert(key).second) pending_.push_back(std::move(pair));
  }

  int next_byte(const Point& point) {
    if (!spells(point.node)) return -1;  // end of the text
    return static_cast<unsigned char>(spellings(point.node)[point.spelling][point.offset]);
  }

  bool excludes(const Pair& pair) {
    const auto& a = grammar_.nodes_[pair.a.node];
    const auto& b = grammar_.nodes_[pair.b.node];
    if (a.kind != NodeKind::Use || b.kind != NodeKind::Use || a.slot == b.slot) return false;
    if (a.capital || b.capital || a.form != 0 || b.form != 0 || pair.a.offset != 0 ||
        pair.b.offset != 0)
      return false;
    const std::uint32_t both = (1u << a.slot) | (1u << b.slot);
    if ((pair.drawn & both) != both) return false;
    return (differ(a.slot, b.slot) || differ(b.slot, a.slot)) &&
           spellings(pair.a.node)[pair.a.spelling] == spellings(pair.b.node)[pair.b.spelling];
  }

  bool differ(int slot, int other) const {
    for (const GrammarFilter& filter : grammar_.slots_[slot].filters) {
      if (!filter.equal && filter.form == 0 && filter.other_slot == other) return true;
    }
    return false;
  }

  std::vector<Point> step(const Point& point) {
    if (!spells(point.node)) return {};
    const std::string& text = spellings(point.node)[point.spelling];
    if (point.offset + 1 < static_cast<std::int32_t>(text.size())) {
      return {{point.node, point.spelling, point.offset + 1}};
    }
    return closure(grammar_.nodes_[point.node].targets[0]);
  }

  void follow() {
    while (!pending_.empty() && !witness_) {
      Pair pair = std::move(pending_.front());
      pending_.pop_front();
      const int byte = next_byte(pair.a);
      if (byte >= 0) pair.text.push_back(static_cast<char>(byte));
      for (const Point& a : step(pair.a)) {
        for (const Point& b : step(pair.b)) add({a, b, pair.drawn, pair.text});
      }
    }
  }

  // Finds the slots that are drawn on every path from the start to a node.
  void find_drawn() {
    std::fill(drawn_.begin(), drawn_.end(), ~std::uint32_t{0});
    drawn_[grammar_.start_] = 0;
    for (std::size_t i = grammar_.nodes_.size(); i-- > 0;) {
      const auto& node = grammar_.nodes_[i];
      std::uint32_t after = drawn_[i];
      if (node.kind == NodeKind::Draw) after |= 1u << node.slot;
      for (std::int32_t target : node.targets) drawn_[target] &= after;
    }
  }

  const AttributeGrammar& grammar_;
  std::map<std::int32_t, std::vector<std::string>> spellings_;
  std::vector<std::optional<std::vector<Point>>> closures_;
  std::vector<std::uint32_t> drawn_;
  using PointKey = std::int32_t;
  std::set<std::tuple<PointKey, PointKey, PointKey, PointKey, PointKey, PointKey, std::uint32_t>>
      seen_;
  std::deque<Pair> pending_;
  std::optional<std::string> witness_;
};

std::optional<std::string> AttributeGrammar::find_ambiguity() const {
  return AmbiguitySearch(*this).run();
}

}  // namespace hone::data
