// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hone/text/tokenizer.h"

namespace hone::infer {

namespace grammar {
class JsonSchema;
}

// A part of a text, as OutputFormat describes it.
struct OutputPart {
  enum class Kind {
    Text,   // exactly `text`
    Token,  // `token`, whatever its text is
    Space,  // up to 4 spaces and line breaks; may be absent
    // A JSON value that satisfies the schema `text` (docs/structured-output.md). Objects have only
    // the properties that the schema lists, unless it lists none or says that there may be others.
    Value,
    Free,  // anything until and with `text`, or until and with `token`
  };
  Kind kind = Kind::Text;
  std::string text{};
  text::TokenId token = -1;    // Token and Free; -1 for none
  bool may_end = false;        // Free: whether the text may end before `text` or `token` comes
  bool only_at_start = false;  // Free: `text` counts only if nothing but white space precedes it
  // Value: whether keywords that cannot be enforced are refused. Otherwise they are left out.
  bool is_strict = true;
  std::string label{};  // Value: precedes the JSON pointers of its schema in messages
};

// What a text looks like: `before`, then one of `choices`, then `after`. If `repeats`, `between`
// and one more of the choices may follow each choice. A choice must not begin with Space or Free.
struct OutputFormat {
  std::vector<OutputPart> before{}, between{}, after{};
  std::vector<std::vector<OutputPart>> choices{};
  bool repeats = false;
};

// Prepares a format for Request::grammar. Takes long for large schemas; may be called on any
// thread, and the result may be shared by requests. Adds the JSON pointers of keywords that are
// left out to `ignored` unless it is null. Throws what grammar::JsonSchema::compile() throws, and
// Error{InvalidArgument} for a malformed format.
std::shared_ptr<const grammar::JsonSchema> compile_output(
    const OutputFormat& format, std::vector<std::string>* ignored = nullptr);

// The bytes that a compiled format takes, about.
std::size_t memory_bytes(const grammar::JsonSchema& compiled);

}  // namespace hone::infer
