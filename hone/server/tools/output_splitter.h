// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"
#include "hone/server/tools/tool_format.h"

namespace hone::server {

// What the parts of an answer look like.
struct OutputSyntax {
  // The tags around the reasoning of a model; empty if it has none.
  std::string think_begin{}, think_end{};
  bool starts_thinking = false;        // whether the prompt has opened the reasoning
  const ToolFormat* format = nullptr;  // with tools
  std::vector<std::string> tools{};    // their names
};

// A piece of an answer.
struct OutputPiece {
  enum class Kind { Reasoning, Content, Call, Arguments } kind = Kind::Content;
  std::string text{};  // of a Call, the name of the tool; of Arguments, JSON
  Index call = 0;      // Call and Arguments: its index
};

// Splits the text of an answer, which comes in pieces, into reasoning, content and calls of tools.
// What is no call is content. The pieces are the same wherever the text is cut, once pieces of one
// kind are joined.
class OutputSplitter {
 public:
  explicit OutputSplitter(const OutputSyntax& syntax);

  std::vector<OutputPiece> push(std::string_view text);
  // The end of the text.
  std::vector<OutputPiece> finish();
  Index calls() const { return calls_; }
  // Whether the text ended within the arguments of a call.
  bool is_cut() const { return is_cut_; }

 private:
  enum class State { Start, Thinking, Content, Head, Arguments, Tail, After };
  enum class Match { No, Partial, Yes };

  bool step();
  bool step_start();
  bool step_thinking();
  bool step_content();
  bool step_head();
  bool step_arguments();
  bool step_tail();
  bool step_after();
  void emit(OutputPiece::Kind kind, std::string_view text);
  void emit_text(OutputPiece::Kind kind, std::string_view text);
  bool begins_call(std::size_t& begin) const;
  bool may_be_bare_call() const;
  bool take_bare_calls();
  void take_call(std::string_view name);
  Match match_head(std::string_view& name, std::size_t& size) const;
  bool has_tools() const { return syntax_.format != nullptr && !syntax_.tools.empty(); }

  const OutputSyntax syntax_;
  State state_ = State::Start;
  std::string pending_;  // not yet given out
  std::string spaces_;   // white space that is given out if text of its kind follows
  std::string begun_;    // what led to the head of a call
  bool is_last_ = false, is_first_call_ = true;
  bool skips_space_ = false;  // whether white space is dropped until text comes
  bool has_content_ = false, is_cut_ = false;
  int depth_ = 0;  // of the arguments
  bool in_string_ = false, is_escaped_ = false, has_value_ = false;
  Index calls_ = 0;
  std::vector<OutputPiece> out_;
};

}  // namespace hone::server
