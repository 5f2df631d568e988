// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/infer/grammar/schema_rules.h"

namespace hone::infer::grammar {

struct SchemaOptions {
  // Not null: keywords that cannot be enforced are left out, and their JSON pointers are added.
  std::vector<std::string>* ignored = nullptr;
  std::string label{};  // precedes all JSON pointers
  // Whether objects have only the properties that their schema lists, where it lists some and does
  // not say whether there may be others.
  bool closes_objects = false;
};

// Reads the keywords of a schema into rules, and returns the root rule. Throws Error{Unsupported},
// which names the keyword and its JSON pointer, for a keyword that is neither enforced
// (docs/structured-output.md has the list) nor an annotation. Throws Error{InvalidArgument} if a
// keyword has a value of another type.
RuleId read_schema(const SchemaValue& schema, SchemaRules& rules, const SchemaOptions& options);

}  // namespace hone::infer::grammar
