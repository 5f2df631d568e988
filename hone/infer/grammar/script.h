// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hone/infer/output_format.h"

namespace hone::infer::grammar {

// A node of the graph of an OutputFormat: a part, and the nodes that may follow it.
struct ScriptNode {
  OutputPart::Kind kind = OutputPart::Kind::Text;
  std::string text{};
  text::TokenId token = -1;
  bool may_end = false, only_at_start = false;
  std::uint32_t rule = 0;                // Value: of the schema
  std::vector<std::uint32_t> borders{};  // Free: see next_match()
  std::vector<std::uint32_t> next{};
  bool ends = false;  // whether the text may end after it
};

inline constexpr std::uint32_t kFinished = 0xffffffff;  // the part has ended
inline constexpr std::uint32_t kLost = 0xfffffffe;      // the text of a Free part cannot come again
inline constexpr std::uint32_t kMaxSpaces = 4;

// The nodes of a format. Node 0 is in front of the text and has ended. `rule_of` gives the rule of
// the schema of a Value. Throws Error{InvalidArgument} for a malformed format.
std::vector<ScriptNode> make_script(const OutputFormat& format,
                                    const std::function<std::uint32_t(const OutputPart&)>& rule_of);

// How many bytes of the text of a Free node match after one more byte: all of them, fewer, or
// kLost.
std::uint32_t next_match(const ScriptNode& node, std::uint32_t matched, std::uint8_t byte);

}  // namespace hone::infer::grammar
