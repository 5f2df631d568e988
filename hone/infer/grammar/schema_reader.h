// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/infer/grammar/schema_rules.h"

namespace hone::infer::grammar {

// Reads the keywords of a schema into rules, and returns the root rule. Throws Error{Unsupported},
// which names the keyword and its JSON pointer, for a keyword that is neither enforced
// (docs/structured-output.md has the list) nor an annotation. Throws Error{InvalidArgument} if a
// keyword has a value of another type. With `ignored`, keywords that cannot be enforced are left
// out instead, and their JSON pointers are added to it.
RuleId read_schema(const SchemaValue& schema, SchemaRules& rules,
                   std::vector<std::string>* ignored = nullptr);

}  // namespace hone::infer::grammar
