// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/infer/grammar/decimal.h"

namespace hone::infer::grammar {

// A JSON value whose numbers are exact.
struct SchemaValue {
  enum class Kind { Null, Bool, Number, String, Array, Object };
  Kind kind = Kind::Null;
  bool boolean = false;
  Decimal number{};
  std::string text{};
  std::vector<SchemaValue> elements{};
  std::vector<std::pair<std::string, SchemaValue>> members{};  // in the order of the text

  const SchemaValue* find(std::string_view key) const;  // null if absent
};

// A compact JSON text: strings as in spell_string(), numbers as in spell(). With sorted keys, two
// values are equal if and only if their texts are.
std::string spell(const SchemaValue& value, bool sort_keys = false);

// A JSON string with the shortest escapes and everything from U+0020 on as it is, except " and \.
std::string spell_string(std::string_view text);

// Parses the text of a schema. `label` names it in messages. Throws Error{CorruptFile} for
// malformed JSON or UTF-8 and duplicate keys, Error{Unsupported} for more than 256 KiB or 96 nested
// levels.
SchemaValue parse_schema_text(std::string_view text, std::string_view label = {});

}  // namespace hone::infer::grammar
