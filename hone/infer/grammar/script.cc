// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/script.h"

#include "hone/core/check.h"

namespace hone::infer::grammar {
namespace {

using PartKind = OutputPart::Kind;
using Nodes = std::vector<std::uint32_t>;

// The failure function of Knuth, Morris and Pratt: entry i is the length of the longest proper
// prefix of the text that ends its first i + 1 bytes.
Nodes find_borders(const std::string& text) {
  Nodes borders(text.size());
  std::uint32_t length = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = borders[length - 1];
    length += text[i] == text[length];
    borders[i] = length;
  }
  return borders;
}

class ScriptBuilder {
 public:
  explicit ScriptBuilder(const std::function<std::uint32_t(const OutputPart&)>& rule_of)
      : rule_of_(rule_of) {
    nodes_.emplace_back();
  }

  // Appends parts after the nodes `tails`; returns the nodes that end them.
  Nodes append(const std::vector<OutputPart>& parts, Nodes tails) {
    for (const OutputPart& part : parts) {
      const std::uint32_t node = add(part);
      link(tails, node);
      if (part.kind == PartKind::Space) {
        tails.push_back(node);
      } else {
        tails = {node};
      }
    }
    return tails;
  }

  std::vector<ScriptNode> build(const OutputFormat& format) {
    HONE_REQUIRE(!format.choices.empty(), "output format", "The list of choices is empty.");
    const Nodes before = append(format.before, {0});
    Nodes firsts, ends;
    for (const std::vector<OutputPart>& choice : format.choices) {
      const bool begins_well = !choice.empty() && choice.front().kind != PartKind::Space &&
                               choice.front().kind != PartKind::Free;
      HONE_REQUIRE(begins_well, "output format", "A choice begins with Space or Free.");
      firsts.push_back(static_cast<std::uint32_t>(nodes_.size()));
      const Nodes tails = append(choice, before);
      ends.insert(ends.end(), tails.begin(), tails.end());
    }
    if (format.repeats) {
      const Nodes again = append(format.between, ends);
      for (const std::uint32_t first : firsts) link(again, first);
    }
    for (const std::uint32_t node : append(format.after, ends)) nodes_[node].ends = true;
    return std::move(nodes_);
  }

 private:
  std::uint32_t add(const OutputPart& part) {
    const bool has_text = !part.text.empty(), has_token = part.token >= 0;
    const bool is_whole = part.kind == PartKind::Space   ? true
                          : part.kind == PartKind::Token ? has_token
                          : part.kind == PartKind::Free  ? has_text || has_token || part.may_end
                                                         : has_text;
    HONE_REQUIRE(is_whole, "output format", "A part has no text and no token.");
    ScriptNode node{.kind = part.kind,
                    .text = part.text,
                    .token = part.token,
                    .may_end = part.may_end,
                    .only_at_start = part.only_at_start};
    if (part.kind == PartKind::Value) {
      node.text.clear();
      node.rule = rule_of_(part);
    }
    if (part.kind == PartKind::Free) node.borders = find_borders(part.text);
    nodes_.push_back(std::move(node));
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }

  void link(const Nodes& tails, std::uint32_t node) {
    for (const std::uint32_t tail : tails) nodes_[tail].next.push_back(node);
  }

  const std::function<std::uint32_t(const OutputPart&)>& rule_of_;
  std::vector<ScriptNode> nodes_;
};

}  // namespace

std::vector<ScriptNode> make_script(
    const OutputFormat& format, const std::function<std::uint32_t(const OutputPart&)>& rule_of) {
  return ScriptBuilder(rule_of).build(format);
}

std::uint32_t next_match(const ScriptNode& node, std::uint32_t matched, std::uint8_t byte) {
  const std::string& text = node.text;
  if (text.empty() || matched == kLost) return kLost;
  const auto is_next = [&](std::uint32_t at) {
    return static_cast<std::uint8_t>(text[at]) == byte;
  };
  if (node.only_at_start) {
    if (is_next(matched)) return matched + 1;
    const bool is_space = byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
    return matched == 0 && is_space ? 0 : kLost;
  }
  while (matched > 0 && !is_next(matched)) matched = node.borders[matched - 1];
  return matched + is_next(matched);
}

}  // namespace hone::infer::grammar
