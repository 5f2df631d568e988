// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/infer/grammar/schema_rules.h"

namespace hone::infer::grammar {

// Reads the keywords of a schema into rules, and returns the rule of the root. Throws
// Error{Unsupported} that names the keyword and its JSON pointer unless all of them are enforced
// (docs/structured-output.md lists them) or annotations, Error{InvalidArgument} if a keyword has
// no value of its type. With `ignored`, keywords that cannot be enforced are left out instead, and
// their JSON pointers are added to it.
RuleId read_schema(const SchemaValue& schema, SchemaRules& rules,
                   std::vector<std::string>* ignored = nullptr);

}  // namespace hone::infer::grammar
