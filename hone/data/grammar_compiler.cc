// SPDX-License-Identifier: Apache-2.0
#include "hone/data/grammar_compiler.h"

#include <algorithm>

#include "hone/core/check.h"

namespace hone::data {
namespace {

// A grammar that unfolds into more nodes than this is certainly a mistake.
constexpr std::size_t kMaxNodes = 1'000'000;

}  // namespace

GrammarCompiler::GrammarCompiler(const GrammarSource& source, std::vector<Node>& nodes)
    : source_(source), nodes_(nodes), used_(source.rules.size()) {}

std::int32_t GrammarCompiler::compile_start(std::string_view terminator) {
  nodes_.assign(1, Node{});
  std::int32_t end = 0;
  if (!terminator.empty()) {
    Node node;
    node.kind = Kind::Text;
    node.text = terminator;
    node.targets.push_back(0);
    end = add(std::move(node));
  }
  const std::int32_t start = compile_rule(0, end);
  for (std::size_t i = 0; i < used_.size(); ++i) {
    if (!used_[i]) {
      fail_argument(concat("grammar line ", source_.rules[i].line),
                    concat("Rule ", source_.rules[i].name, " is not reachable."));
    }
  }
  return start;
}

std::int32_t GrammarCompiler::add(Node node) {
  HONE_REQUIRE(nodes_.size() < kMaxNodes, "grammar",
               "The grammar unfolds into more than 1000000 nodes.");
  nodes_.push_back(std::move(node));
  return static_cast<std::int32_t>(nodes_.size() - 1);
}

std::int32_t GrammarCompiler::compile_rule(int rule, std::int32_t next) {
  const auto found = known_.find({rule, next});
  if (found != known_.end()) return found->second;
  const GrammarRule& definition = source_.rules[rule];
  const std::string place = concat("grammar line ", definition.line);
  if (std::find(active_.begin(), active_.end(), rule) != active_.end()) {
    fail_argument(place, concat("Rule ", definition.name, " is recursive."));
  }
  HONE_REQUIRE(!definition.alternatives.empty(), place,
               concat("Rule ", definition.name, " has no alternative."));
  active_.push_back(rule);
  used_[rule] = true;
  const std::int32_t node = compile_choice(definition.alternatives, next);
  active_.pop_back();
  known_[{rule, next}] = node;
  return node;
}

std::int32_t GrammarCompiler::compile_named_rule(const std::string& name, std::int32_t next) {
  const int rule = source_.find_rule(name);
  HONE_REQUIRE(rule >= 0, "grammar", concat("There is no rule ", name, "."));
  return compile_rule(rule, next);
}

std::int32_t GrammarCompiler::compile_choice(const std::vector<GrammarAlternative>& alternatives,
                                             std::int32_t next) {
  Node choice;
  choice.kind = Kind::Choice;
  double total = 0;
  for (const GrammarAlternative& alternative : alternatives) total += alternative.weight;
  for (const GrammarAlternative& alternative : alternatives) {
    std::int32_t node = next;
    for (std::size_t i = alternative.items.size(); i-- > 0;) {
      node = compile_item(alternative.items[i], node);
    }
    choice.targets.push_back(node);
    choice.probabilities.push_back(alternative.weight / total);
  }
  return choice.targets.size() == 1 ? choice.targets[0] : add(std::move(choice));
}

std::int32_t GrammarCompiler::compile_item(const GrammarItem& item, std::int32_t next) {
  Node node;
  switch (item.kind) {
    case GrammarItem::Kind::Rule:
      return compile_named_rule(item.text, next);
    case GrammarItem::Kind::Switch:
      return compile_switch(item, next);
    case GrammarItem::Kind::Group:
      return compile_choice(item.alternatives, next);
    case GrammarItem::Kind::Text:
      node.kind = Kind::Text;
      node.text = item.text;
      break;
    case GrammarItem::Kind::Use:
    case GrammarItem::Kind::Draw:
      node.kind = item.kind == GrammarItem::Kind::Use ? Kind::Use : Kind::Draw;
      node.slot = item.slot;
      node.form = item.form;
      node.capital = item.capital;
      break;
  }
  node.targets.push_back(next);
  return add(std::move(node));
}

std::int32_t GrammarCompiler::compile_switch(const GrammarItem& item, std::int32_t next) {
  Node node;
  node.kind = Kind::Switch;
  node.slot = item.slot;
  node.form = item.form;
  for (const auto& value : source_.domains[source_.slots[item.slot].domain].values) {
    node.targets.push_back(compile_named_rule(concat(item.text, '.', value[item.form]), next));
  }
  return add(std::move(node));
}

}  // namespace hone::data
