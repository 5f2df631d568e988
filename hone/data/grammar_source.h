// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"

namespace hone::data {

// The parsed text of a grammar (docs/story-grammar.md), which AttributeGrammar compiles.

struct GrammarDomain {
  std::string name;
  std::vector<std::string> forms;                // form 0 is the key
  std::vector<std::vector<std::string>> values;  // [value][form]
  std::vector<double> weights;                   // per value
};

// A value is allowed if its `form` equals (or differs from) the key of another slot's value.
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
  std::string text;  // the text, the name of the rule, or the stem of a Switch's rules
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
  std::vector<GrammarRule> rules;  // derivations start at the first one

  int find_rule(std::string_view name) const;  // -1 if there is none
};

// Throws Error{InvalidArgument} "[grammar line N] …".
GrammarSource parse_grammar(std::string_view source);

}  // namespace hone::data
