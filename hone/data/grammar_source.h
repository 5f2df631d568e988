// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"

namespace hone::data {

// The parsed form of a grammar's text (docs/story-grammar.md); AttributeGrammar compiles it.

struct GrammarDomain {
  std::string name;
  std::vector<std::string> forms;                // form 0 is the key
  std::vector<std::vector<std::string>> values;  // [value][form]
  std::vector<double> weights;                   // per value
};

// A value is allowed when its `form` equals (or differs from) the key of another slot's value.
struct GrammarFilter {
  int form = 0, other_slot = 0;
  bool equal = true;
};

struct GrammarSlot {
  std::string name;
  int domain = 0;
  std::vector<GrammarFilter> filters;
};

struct GrammarAlternative;
struct GrammarItem {
  enum class Kind { Text, Use, Draw, Rule, Switch, Group };
  Kind kind = Kind::Text;
  std::string text;  // Text; name of the rule; stem of the rules of a Switch
  int slot = 0, form = 0;
  bool capital = false;                          // first letter upper-case
  std::vector<GrammarAlternative> alternatives;  // Group
};
struct GrammarAlternative {
  double weight = 1;
  std::vector<GrammarItem> items;
};
struct GrammarRule {
  std::string name;
  Index line = 0;
  std::vector<GrammarAlternative> alternatives;
};

struct GrammarSource {
  std::vector<GrammarDomain> domains;
  std::vector<GrammarSlot> slots;
  std::vector<GrammarRule> rules;  // the first one is where a derivation starts

  int find_rule(std::string_view name) const;  // -1 when there is none
};

// Error{InvalidArgument} "[grammar line N] expected …, got …".
GrammarSource parse_grammar(std::string_view source);

}  // namespace hone::data
