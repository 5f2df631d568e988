// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/infer/grammar/schema_rules.h"

namespace hone::infer::grammar {

// Reads the keywords of a schema into rules, and returns the rule of the root. Throws
// Error{Unsupported} that names the keyword and its JSON pointer unless all of them are enforced
// (docs/structured-output.md lists them) or annotations, Error{InvalidArgument} if a keyword has
// no value of its type.
RuleId read_schema(const SchemaValue& schema, SchemaRules& rules);

}  // namespace hone::infer::grammar
