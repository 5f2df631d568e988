// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hone::text {

struct TemplateToken {
  enum class Kind {
    Text,        // outside of tags
    BlockBegin,  // {%
    BlockEnd,
    PrintBegin,  // {{
    PrintEnd,
    Name,
    Integer,  // `text` is as written, without _
    Float,
    String,    // `text` is its value
    Operator,  // `text` is its spelling
    End,
  };
  Kind kind = Kind::End;
  std::string text{};
  int line = 0;
};

using TokenKind = TemplateToken::Kind;

// Splits a Jinja template as the environment of chat templates does: trim_blocks, lstrip_blocks, no
// trailing newline. Comments and raw blocks are resolved. Ends with one token End. Throws
// Error{CorruptFile} that names `where` and the line.
std::vector<TemplateToken> split_template(std::string_view source, std::string_view where);

}  // namespace hone::text
