// SPDX-License-Identifier: Apache-2.0
#include "hone/server/tools/output_splitter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/error.h"
#include "hone/core/file/json_io.h"

namespace hone::server {
namespace {

constexpr std::string_view kSpace = " \n\t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// Whether more text could make the one begin with the other.
bool may_begin_with(std::string_view text, std::string_view whole) {
  return text.size() < whole.size() && whole.starts_with(text);
}

// The length of the longest end of the text that begins `whole`.
std::size_t begun_at_end(std::string_view text, std::string_view whole) {
  std::size_t length = std::min(text.size(), whole.size() - 1);
  while (length > 0 && !whole.starts_with(text.substr(text.size() - length))) --length;
  return length;
}

std::string without_space(std::string_view text) {
  std::string out;
  std::ranges::copy_if(text, std::back_inserter(out),
                       [](char c) { return kSpace.find(c) == kSpace.npos; });
  return out;
}

// A character of a number, true, false or null.
bool is_scalar(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '.' || c == '-' || c == '+' ||
         c == 'E';
}

// What some models write around a call, instead of what their template shows.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kWrappers = {
    {{"```json", "```"}, {"```", "```"}, {"<tools>", "</tools>"}, {"", ""}}};
constexpr std::array<std::string_view, 3> kBareHeads = {
    "{\"name\":", "[{\"name\":", "{\"type\":\"function\",\"name\":"};

// The text inside of a wrapper.
std::string_view unwrapped(std::string_view text) {
  text = trimmed(text);
  for (const auto& [open, close] : kWrappers) {
    if (!text.starts_with(open)) continue;
    text.remove_prefix(open.size());
    if (text.ends_with(close)) text.remove_suffix(close.size());
    break;
  }
  return trimmed(text);
}

}  // namespace

OutputSplitter::OutputSplitter(const OutputSyntax& syntax) : syntax_(syntax) {}

std::vector<OutputPiece> OutputSplitter::push(std::string_view text) {
  pending_ += text;
  while (step()) {
  }
  return std::exchange(out_, {});
}

std::vector<OutputPiece> OutputSplitter::finish() {
  is_last_ = true;
  while (step()) {
  }
  is_cut_ = state_ == State::Arguments;
  const bool ends_content = state_ == State::Content && calls_ == 0 && !skips_space_;
  if (ends_content && !spaces_.empty()) emit(OutputPiece::Kind::Content, spaces_);
  return std::exchange(out_, {});
}

// Handles what is pending. Returns whether there may be more to do.
bool OutputSplitter::step() {
  switch (state_) {
    case State::Start:
      return step_start();
    case State::Thinking:
      return step_thinking();
    case State::Content:
      return step_content();
    case State::Head:
      return step_head();
    case State::Arguments:
      return step_arguments();
    case State::Tail:
      return step_tail();
    case State::After:
      break;
  }
  return step_after();
}

bool OutputSplitter::step_start() {
  const std::string_view begin = syntax_.think_begin;
  const std::size_t spaces = std::min(pending_.find_first_not_of(kSpace), pending_.size());
  const std::string_view text = std::string_view(pending_).substr(spaces);
  state_ = State::Content;
  if (syntax_.think_end.empty()) return true;
  if (!is_last_ && may_begin_with(text, begin)) {
    state_ = State::Start;
    return false;
  }
  if (syntax_.starts_thinking || text.starts_with(begin)) {
    if (text.starts_with(begin)) pending_.erase(0, spaces + begin.size());
    state_ = State::Thinking;
    skips_space_ = true;
  }
  return true;
}

bool OutputSplitter::step_thinking() {
  const std::size_t end = pending_.find(syntax_.think_end);
  const bool has_end = end != pending_.npos;
  const std::size_t held = is_last_ ? 0 : begun_at_end(pending_, syntax_.think_end);
  const std::size_t given = has_end ? end : pending_.size() - held;
  emit_text(OutputPiece::Kind::Reasoning, std::string_view(pending_).substr(0, given));
  pending_.erase(0, has_end ? end + syntax_.think_end.size() : given);
  if (!has_end) return false;
  spaces_.clear();
  skips_space_ = true;
  state_ = State::Content;
  return true;
}

// Where a call begins; false if none does.
bool OutputSplitter::begins_call(std::size_t& begin) const {
  begin = pending_.find(syntax_.format->begin);
  if (begin == pending_.npos) return false;
  if (!syntax_.format->only_at_start) return true;
  return !has_content_ && pending_.find_first_not_of(kSpace) == begin;
}

bool OutputSplitter::step_content() {
  if (pending_.empty()) return false;
  if (!has_tools()) {
    emit_text(OutputPiece::Kind::Content, std::exchange(pending_, {}));
    return false;
  }
  std::size_t begin = 0;
  if (begins_call(begin)) {
    emit_text(OutputPiece::Kind::Content, std::string_view(pending_).substr(0, begin));
    begun_ = syntax_.format->begin;
    pending_.erase(0, begin + begun_.size());
    is_first_call_ = true;
    state_ = State::Head;
    return true;
  }
  if (!has_content_ && calls_ == 0) {
    if (is_last_ && take_bare_calls()) return false;
    if (!is_last_ && may_be_bare_call()) return false;
  }
  std::size_t held = 0;
  if (!is_last_ && !(syntax_.format->only_at_start && has_content_)) {
    held = begun_at_end(pending_, syntax_.format->begin);
  }
  emit_text(OutputPiece::Kind::Content,
            std::string_view(pending_).substr(0, pending_.size() - held));
  pending_.erase(0, pending_.size() - held);
  return false;
}

// Compares what follows `begin`, or what joins calls, with the heads of all tools.
OutputSplitter::Match OutputSplitter::match_head(std::string_view& name, std::size_t& size) const {
  const ToolFormat& format = *syntax_.format;
  std::size_t spaces = 0;
  if (is_first_call_ && format.has_space) {
    spaces = std::min(pending_.find_first_not_of(kSpace), pending_.size());
  }
  const std::string_view text = std::string_view(pending_).substr(spaces);
  bool is_partial = false;
  for (const std::string& tool : syntax_.tools) {
    const std::string head = concat(is_first_call_ ? format.open : std::string_view(), format.head,
                                    spelled_name(format, tool), format.middle);
    if (text.starts_with(head)) {
      name = tool;
      size = spaces + head.size();
      return Match::Yes;
    }
    is_partial = is_partial || may_begin_with(text, head);
  }
  return is_partial ? Match::Partial : Match::No;
}

void OutputSplitter::take_call(std::string_view name) {
  out_.push_back({.kind = OutputPiece::Kind::Call, .text = std::string(name), .call = calls_});
  ++calls_;
  spaces_.clear();
}

bool OutputSplitter::step_head() {
  std::string_view name;
  std::size_t size = 0;
  const Match match = match_head(name, size);
  if (match == Match::Partial && is_last_ && calls_ > 0) pending_.clear();  // a call that was cut
  switch (match == Match::Partial && is_last_ && calls_ == 0 ? Match::No : match) {
    case Match::Partial:
      return false;
    case Match::No:
      emit_text(OutputPiece::Kind::Content, begun_);
      state_ = State::Content;
      return true;
    case Match::Yes:
      break;
  }
  take_call(name);
  pending_.erase(0, size);
  depth_ = 0;
  in_string_ = is_escaped_ = has_value_ = false;
  state_ = State::Arguments;
  return true;
}

bool OutputSplitter::step_arguments() {
  bool has_ended = false;
  std::size_t at = 0;
  while (at < pending_.size() && !has_ended) {
    const char c = pending_[at];
    const bool is_close = c == '}' || c == ']';
    if (in_string_) {
      const bool ends_string = c == '"' && !is_escaped_;
      is_escaped_ = c == '\\' && !is_escaped_;
      in_string_ = !ends_string;
      has_ended = ends_string && depth_ == 0;
    } else if (depth_ == 0 && has_value_ && !is_scalar(c)) {
      break;  // a number or a word has ended
    } else {
      in_string_ = c == '"';
      depth_ += c == '{' || c == '[';
      depth_ -= is_close;
      has_ended = is_close && depth_ == 0;
    }
    has_value_ = has_value_ || kSpace.find(c) == kSpace.npos;
    ++at;
  }
  emit(OutputPiece::Kind::Arguments, std::string_view(pending_).substr(0, at));
  const bool stops = has_ended || at < pending_.size();
  pending_.erase(0, at);
  if (stops) state_ = State::Tail;
  return stops;
}

bool OutputSplitter::step_tail() {
  const std::string_view tail = syntax_.format->tail;
  if (pending_.starts_with(tail)) {
    pending_.erase(0, tail.size());
    state_ = State::After;
    return true;
  }
  if (may_begin_with(pending_, tail)) {
    if (is_last_) pending_.clear();
    return false;
  }
  state_ = State::Content;
  return true;
}

bool OutputSplitter::step_after() {
  const ToolFormat& format = *syntax_.format;
  if (format.repeats && pending_.starts_with(format.between)) {
    begun_ = format.between;
    pending_.erase(0, begun_.size());
    is_first_call_ = false;
    state_ = State::Head;
    return true;
  }
  if (!format.close.empty() && pending_.starts_with(format.close)) {
    pending_.erase(0, format.close.size());
  } else if (may_begin_with(pending_, format.between) || may_begin_with(pending_, format.close)) {
    if (is_last_) pending_.clear();
    return false;
  }
  skips_space_ = true;
  state_ = State::Content;
  return true;
}

void OutputSplitter::emit(OutputPiece::Kind kind, std::string_view text) {
  if (text.empty()) return;
  const Index call = std::max<Index>(0, calls_ - 1);
  if (!out_.empty() && out_.back().kind == kind && kind != OutputPiece::Kind::Call) {
    out_.back().text += text;
  } else {
    out_.push_back({.kind = kind, .text = std::string(text), .call = call});
  }
}

// Text without white space around it, where reasoning or calls are apart from it.
void OutputSplitter::emit_text(OutputPiece::Kind kind, std::string_view text) {
  const bool is_content = kind == OutputPiece::Kind::Content;
  if (skips_space_) text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  if (text.empty()) return;
  skips_space_ = false;
  std::size_t end = text.size();
  if (!is_content || has_tools()) end = text.find_last_not_of(kSpace) + 1;
  if (end > 0) {
    emit(kind, std::exchange(spaces_, {}) + std::string(text.substr(0, end)));
    has_content_ = has_content_ || is_content;
  }
  spaces_ += text.substr(end);
}

// Whether the text may become a call without the marks of the format.
bool OutputSplitter::may_be_bare_call() const {
  constexpr std::size_t kMost = 256;
  const std::string_view text = trimmed(pending_);
  for (const auto& [open, close] : kWrappers) {
    if (may_begin_with(text, open)) return true;
    if (!text.starts_with(open)) continue;
    const std::string begun = without_space(text.substr(open.size(), kMost));
    for (const std::string& tool : syntax_.tools) {
      for (const std::string_view head : kBareHeads) {
        const std::string whole = concat(head, without_space(Json(tool).dump()));
        if (begun.starts_with(whole) || whole.starts_with(begun)) return true;
      }
    }
  }
  return false;
}

// Takes the pending text as calls if it is JSON that calls tools, and nothing else.
bool OutputSplitter::take_bare_calls() {
  if (!may_be_bare_call()) return false;
  Json calls;
  try {
    calls = parse_json(unwrapped(pending_), "a call");
  } catch (const Error&) {
    return false;
  }
  if (calls.is_object()) calls = Json::array({std::move(calls)});
  if (!calls.is_array() || calls.empty()) return false;
  std::vector<std::pair<std::string, std::string>> found;
  for (const Json& call : calls) {
    if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return false;
    const char* key = call.contains("arguments") ? "arguments" : "parameters";
    const std::string name = call["name"].get<std::string>();
    const bool is_tool = std::ranges::find(syntax_.tools, name) != syntax_.tools.end();
    if (!is_tool || !call.contains(key) || !call[key].is_object()) return false;
    found.emplace_back(name, call[key].dump());
  }
  for (const auto& [name, arguments] : found) {
    take_call(name);
    emit(OutputPiece::Kind::Arguments, arguments);
  }
  pending_.clear();
  return true;
}

}  // namespace hone::server
