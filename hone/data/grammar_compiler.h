// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "hone/data/attribute_grammar.h"

namespace hone::data {

// Unfolds rules into the node graph. compile_rule(rule, next) returns the node where the rule's
// text begins if `next` follows it. Equal (rule, next) pairs share their nodes.
class GrammarCompiler {
 public:
  GrammarCompiler(const GrammarSource& source, std::vector<AttributeGrammar::Node>& nodes);

  // Returns the node where derivations start. They end at node 0, after `terminator`.
  std::int32_t compile_start(std::string_view terminator);

 private:
  using Node = AttributeGrammar::Node;
  using Kind = AttributeGrammar::NodeKind;

  std::int32_t add(Node node);
  std::int32_t compile_rule(int rule, std::int32_t next);
  std::int32_t compile_named_rule(const std::string& name, std::int32_t next);
  std::int32_t compile_choice(const std::vector<GrammarAlternative>& alternatives,
                              std::int32_t next);
  std::int32_t compile_item(const GrammarItem& item, std::int32_t next);
  std::int32_t compile_switch(const GrammarItem& item, std::int32_t next);

  const GrammarSource& source_;
  std::vector<Node>& nodes_;
  std::map<std::pair<int, std::int32_t>, std::int32_t> known_;
  std::vector<int> active_;  // rules being unfolded
  std::vector<bool> used_;
};

}  // namespace hone::data
