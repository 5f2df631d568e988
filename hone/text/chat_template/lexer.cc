// SPDX-License-Identifier: Apache-2.0
#include "hone/text/chat_template/lexer.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "hone/core/check.h"
#include "hone/text/unicode/utf8.h"

namespace hone::text {
namespace {

constexpr std::string_view kSpaces = " \t\n\r\f\v";
constexpr std::array<std::string_view, 25> kOperators = {
    "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "|",
    "[",  "]",  "(",  ")",  "{",  "}",  ">", "<", "=", ".", ":", ","};

bool is_blank(char c) { return kSpaces.find(c) != std::string_view::npos; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_name(char c) {
  return static_cast<unsigned char>(c) >= 0x80 || is_digit(c) || c == '_' || is_letter(c);
}

// Every line ends with \n, and the last one with none, as in Jinja.
std::string normalized(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view where)
      : source_(normalized(source)), rest_(source_), where_(where) {}

  std::vector<TemplateToken> run() {
    while (!rest_.empty()) read_text();
    add(TokenKind::End, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_here(std::string_view sentence) const {
    fail_corrupt(where_, concat("Line ", line_, " of the chat template: ", sentence));
  }

  std::string_view take(std::size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    line_ += static_cast<int>(std::ranges::count(taken, '\n'));
    if (!taken.empty()) starts_line_ = taken.back() == '\n';
    return taken;
  }
  void skip_spaces() {
    while (!rest_.empty() && is_blank(rest_[0])) take(1);
  }
  // The white space behind a block or a comment that ends with this sign.
  void trim_after(char sign) {
    if (sign == '-') {
      skip_spaces();
    } else if (sign != '+' && rest_.starts_with('\n')) {
      take(1);
    }
  }
  void add(TokenKind kind, std::string_view text) {
    tokens_.push_back({.kind = kind, .text = std::string(text), .line = line_});
  }

  void read_text();
  void add_text(std::size_t count, bool is_block, char sign);
  void read_comment();
  bool read_raw();
  void read_tag(TokenKind end_kind, std::string_view end);
  bool end_tag(TokenKind end_kind, std::string_view end);
  void read_token();
  void read_number();
  void read_string(char quote);
  std::string unescape(std::string_view spelled) const;
  std::size_t unescape_code_point(std::string_view digits, std::size_t count,
                                  std::string& out) const;

  std::string source_;
  std::string_view rest_, where_;
  std::vector<TemplateToken> tokens_;
  std::string brackets_;  // open in the current tag
  int line_ = 1;
  bool starts_line_ = true;  // at the beginning of a line
};

// The text up to the next tag, and the tag.
void Lexer::read_text() {
  std::size_t at = 0;
  for (;; ++at) {
    at = rest_.find('{', at);
    if (at == std::string_view::npos || at + 1 >= rest_.size()) at = rest_.size();
    if (at == rest_.size() ||
        std::string_view("{%#").find(rest_[at + 1]) != std::string_view::npos) {
      break;
    }
  }
  if (at == rest_.size()) {
    if (!rest_.empty()) add(TokenKind::Text, rest_);
    take(rest_.size());
    return;
  }
  const char tag = rest_[at + 1];
  const char after = at + 2 < rest_.size() ? rest_[at + 2] : ' ';
  const char sign = after == '-' || (after == '+' && tag != '{') ? after : ' ';
  add_text(at, tag != '{', sign);
  if (tag == '#') return read_comment();
  if (tag == '%' && read_raw()) return;
  take(sign == ' ' ? 2 : 3);
  if (tag == '{') {
    add(TokenKind::PrintBegin, "{{");
    read_tag(TokenKind::PrintEnd, "}}");
  } else {
    add(TokenKind::BlockBegin, "{%");
    read_tag(TokenKind::BlockEnd, "%}");
  }
}

// The next `count` bytes, up to a tag. White space in front of the tag goes with {%-; in front of a
// block also if it begins the line.
void Lexer::add_text(std::size_t count, bool is_block, char sign) {
  const bool started_line = starts_line_;
  const int line = line_;
  std::string_view text = take(count);
  if (sign == '-') {
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  } else if (sign == ' ' && is_block) {
    const std::size_t newline = text.rfind('\n');
    const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if ((begin > 0 || started_line) && std::ranges::all_of(text.substr(begin), is_blank)) {
      text = text.substr(0, begin);
    }
  }
  if (!text.empty())
    tokens_.push_back({.kind = TokenKind::Text, .text = std::string(text), .line = line});
}

void Lexer::read_comment() {
  const std::size_t end = rest_.find("#}", 2);
  if (end == std::string_view::npos) fail_here("A comment does not end.");
  const char sign = end > 2 ? rest_[end - 1] : ' ';
  take(end + 2);
  trim_after(sign);
}

// {% raw %} … {% endraw %}
bool Lexer::read_raw() {
  const auto tag = [](std::string_view text, std::string_view name) -> std::size_t {
    std::size_t at = 2;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    while (at < text.size() && is_blank(text[at])) ++at;
    if (!text.substr(at).starts_with(name)) return 0;
    at += name.size();
    while (at < text.size() && is_blank(text[at])) ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    return text.substr(at).starts_with("%}") ? at + 2 : 0;
  };
  const std::size_t begin = tag(rest_, "raw");
  if (begin == 0) return false;
  const char begin_sign = rest_[begin - 3];
  take(begin);
  if (begin_sign == '-') skip_spaces();
  for (std::size_t at = 0; (at = rest_.find("{%", at)) != std::string_view::npos; ++at) {
    const std::size_t length = tag(rest_.substr(at), "endraw");
    if (length == 0) continue;
    const char before = rest_[at + 2], after = rest_[at + length - 3];
    add_text(at, true, before == '-' || before == '+' ? before : ' ');
    take(length);
    trim_after(after);
    return true;
  }
  fail_here("A raw block does not end.");
}

void Lexer::read_tag(TokenKind end_kind, std::string_view end) {
  brackets_.clear();
  for (;;) {
    skip_spaces();
    if (rest_.empty()) fail_here("A tag does not end.");
    if (brackets_.empty() && end_tag(end_kind, end)) return;
    read_token();
  }
}

bool Lexer::end_tag(TokenKind end_kind, std::string_view end) {
  const bool is_block = end_kind == TokenKind::BlockEnd;
  const bool has_sign = rest_[0] == '-' || (is_block && rest_[0] == '+');
  if (!rest_.substr(has_sign ? 1 : 0).starts_with(end)) return false;
  const char sign = has_sign ? rest_[0] : ' ';
  add(end_kind, end);
  take(end.size() + (has_sign ? 1 : 0));
  if (is_block) {
    trim_after(sign);
  } else if (sign == '-') {
    skip_spaces();
  }
  return true;
}

void Lexer::read_token() {
  const char c = rest_[0];
  if (is_digit(c)) return read_number();
  if (c == '"' || c == '\'') return read_string(c);
  if (is_name(c)) {
    const auto end = std::ranges::find_if_not(rest_, is_name);
    const std::string_view name = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    add(TokenKind::Name, name);
    take(name.size());
    return;
  }
  const auto* const found = std::ranges::find_if(
      kOperators, [this](std::string_view spelling) { return rest_.starts_with(spelling); });
  if (found == kOperators.end()) {
    fail_here(concat("\"", rest_.substr(0, 1), "\" is not part of an expression."));
  }
  static constexpr std::string_view kOpen = "([{", kClosed = ")]}";
  if (kOpen.find(c) != std::string_view::npos) brackets_.push_back(c);
  if (const auto closed = kClosed.find(c); closed != std::string_view::npos) {
    if (brackets_.empty() || brackets_.back() != kOpen[closed]) {
      fail_here(concat("\"", rest_.substr(0, 1), "\" closes nothing."));
    }
    brackets_.pop_back();
  }
  add(TokenKind::Operator, *found);
  take(found->size());
}

void Lexer::read_number() {
  std::string digits;
  std::size_t at = 0;
  bool is_float = false;
  const auto read_digits = [&] {
    while (at < rest_.size() && (is_digit(rest_[at]) || rest_[at] == '_')) {
      if (rest_[at] != '_') digits.push_back(rest_[at]);
      ++at;
    }
  };
  const auto digit_at = [this](std::size_t i) { return i < rest_.size() && is_digit(rest_[i]); };
  if (rest_.size() > 2 && rest_[0] == '0' &&
      std::string_view("xXoObB").find(rest_[1]) != std::string_view::npos) {
    const auto end = std::ranges::find_if_not(rest_, is_name);
    const std::string_view spelled = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    std::ranges::copy_if(spelled, std::back_inserter(digits), [](char c) { return c != '_'; });
    add(TokenKind::Integer, digits);
    take(spelled.size());
    return;
  }
  read_digits();
  if (at < rest_.size() && rest_[at] == '.' && digit_at(at + 1)) {
    is_float = true;
    digits.push_back(rest_[at++]);
    read_digits();
  }
  if (at < rest_.size() && (rest_[at] == 'e' || rest_[at] == 'E')) {
    const bool has_sign = at + 1 < rest_.size() && (rest_[at + 1] == '+' || rest_[at + 1] == '-');
    if (digit_at(at + (has_sign ? 2 : 1))) {
      is_float = true;
      digits += rest_.substr(at, has_sign ? 2 : 1);
      at += has_sign ? 2 : 1;
      read_digits();
    }
  }
  add(is_float ? TokenKind::Float : TokenKind::Integer, digits);
  take(at);
}

void Lexer::read_string(char quote) {
  std::size_t end = 1;
  while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
  if (end >= rest_.size()) fail_here("A string does not end.");
  add(TokenKind::String, unescape(rest_.substr(1, end - 1)));
  take(end + 1);
}

// Appends the character with this hexadecimal number of `count` digits.
std::size_t Lexer::unescape_code_point(std::string_view digits, std::size_t count,
                                       std::string& out) const {
  digits = digits.substr(0, count);
  const bool is_complete =
      digits.size() == count &&
      digits.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
  const auto value = is_complete ? std::stoul(std::string(digits), nullptr, 16) : 0xD800;
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    fail_here("A string has an escape without a character.");
  }
  append_utf8(out, static_cast<char32_t>(value));
  return count;
}

// Python's escapes. Unknown ones stay as they are.
std::string Lexer::unescape(std::string_view spelled) const {
  static constexpr std::string_view kNames = "\\'\"abfnrtv", kBytes = "\\'\"\a\b\f\n\r\t\v";
  std::string out;
  for (std::size_t i = 0; i < spelled.size(); ++i) {
    if (spelled[i] != '\\' || i + 1 == spelled.size()) {
      out.push_back(spelled[i]);
      continue;
    }
    const char c = spelled[++i];
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (const auto named = kNames.find(c); named != std::string_view::npos) {
      out.push_back(kBytes[named]);
    } else if (c == '\n') {  // joins the lines
    } else if (digits > 0) {
      i += unescape_code_point(spelled.substr(i + 1), digits, out);
    } else if (c >= '0' && c <= '7') {
      std::size_t count = 1;
      while (count < 3 && i + count < spelled.size() && spelled[i + count] >= '0' &&
             spelled[i + count] <= '7') {
        ++count;
      }
      append_utf8(out, static_cast<char32_t>(
                           std::stoul(std::string(spelled.substr(i, count)), nullptr, 8)));
      i += count - 1;
    } else {
      out.push_back('\\');
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

std::vector<TemplateToken> split_template(std::string_view source, std::string_view where) {
  return Lexer(source, where).run();
}

}  // namespace hone::text
