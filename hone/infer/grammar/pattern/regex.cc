// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/pattern/regex.h"

#include <algorithm>
#include <string>
#include <utility>

#include "hone/core/check.h"
#include "hone/infer/grammar/schema_rules.h"
#include "hone/text/unicode/utf8.h"

namespace hone::infer::grammar {
namespace {

constexpr std::size_t kMostBytes = 4096;
constexpr int kMostNesting = 64;
constexpr std::uint32_t kMostRepeats = 1000;
constexpr char32_t kLast = 0x10ffff;

const CodePoints kDigits = {{U'0', U'9'}};
const CodePoints kWord = {{U'0', U'9'}, {U'A', U'Z'}, {U'_', U'_'}, {U'a', U'z'}};
const CodePoints kSpaces = {{0x9, 0xd},       {0x20, 0x20},     {0xa0, 0xa0},     {0x1680, 0x1680},
                            {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                            {0x3000, 0x3000}, {0xfeff, 0xfeff}};
const CodePoints kLineEnds = {{U'\n', U'\n'}, {U'\r', U'\r'}, {0x2028, 0x2029}};

CodePoints normalized(CodePoints set) {
  std::ranges::sort(set);
  CodePoints out;
  for (const auto& [low, high] : set) {
    if (!out.empty() && low <= out.back().second + 1) {
      out.back().second = std::max(out.back().second, high);
    } else {
      out.emplace_back(low, high);
    }
  }
  return out;
}

CodePoints complement(const CodePoints& set) {
  CodePoints out;
  char32_t next = 0;
  for (const auto& [low, high] : normalized(set)) {
    if (low > next) out.emplace_back(next, low - 1);
    next = high + 1;
  }
  if (next <= kLast) out.emplace_back(next, kLast);
  return out;
}

// Characters of a pattern, and its escapes.
class PatternReader {
 public:
  PatternReader(std::u32string pattern, std::string_view pointer)
      : pattern_(std::move(pattern)), pointer_(concat(pointer, "/pattern")) {}

 protected:
  [[noreturn]] void refuse(std::string_view what) const {
    const std::string_view place = std::string_view(pointer_).substr(0, pointer_.rfind('/'));
    refuse_schema(place, concat("The keyword \"pattern\" has ", what, ", which is not enforced."));
  }
  [[noreturn]] void malformed(std::string_view what) const {
    fail_argument("JSON schema", concat("At ", pointer_, ": The pattern is malformed: ", what,
                                        " at character ", at_, "."));
  }
  bool has_more() const { return at_ < pattern_.size(); }
  char32_t peek() const { return pattern_[at_]; }
  bool take(char32_t c) {
    if (!has_more() || peek() != c) return false;
    ++at_;
    return true;
  }
  char32_t next(std::string_view missing) {
    if (!has_more()) malformed(missing);
    return pattern_[at_++];
  }

  char32_t parse_hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char32_t c = next("an escape without its digits");
      const bool is_decimal = c >= U'0' && c <= U'9';
      const char32_t letter = c | 0x20;
      if (!is_decimal && (letter < U'a' || letter > U'f'))
        malformed("an escape without its digits");
      value = value * 16 + (is_decimal ? c - U'0' : letter - U'a' + 10);
    }
    return value;
  }

  char32_t parse_unicode() {
    if (take(U'{')) {
      char32_t value = parse_hex(1);
      while (!take(U'}')) {
        value = value * 16 + parse_hex(1);
        if (value > kLast) malformed("a code point beyond U+10FFFF");
      }
      return value;
    }
    const char32_t high = parse_hex(4);
    const bool is_pair = high >= 0xd800 && high < 0xdc00 && at_ + 1 < pattern_.size() &&
                         peek() == U'\\' && pattern_[at_ + 1] == U'u';
    if (!is_pair) return high;
    const std::size_t begin = at_;
    at_ += 2;
    const char32_t low = parse_hex(4);
    if (low < 0xdc00 || low > 0xdfff) {
      at_ = begin;  // half a pair, then something else
      return high;
    }
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }

  CodePoints parse_escape(bool in_class) {
    const char32_t c = next("a backslash at the end");
    const auto one = [](char32_t point) { return CodePoints{{point, point}}; };
    switch (c) {
      case U'd':
        return kDigits;
      case U'D':
        return complement(kDigits);
      case U'w':
        return kWord;
      case U'W':
        return complement(kWord);
      case U's':
        return kSpaces;
      case U'S':
        return complement(kSpaces);
      case U'n':
        return one(U'\n');
      case U'r':
        return one(U'\r');
      case U't':
        return one(U'\t');
      case U'f':
        return one(U'\f');
      case U'v':
        return one(U'\v');
      case U'0':
        return one(0);
      case U'x':
        return one(parse_hex(2));
      case U'u':
        return one(parse_unicode());
      case U'c':
        return one(next("a control character without its letter") & 31);
      case U'b':
        if (in_class) return one(U'\b');
        refuse("a word boundary");
      case U'B':
        refuse("a word boundary");
      case U'p':
      case U'P':
        refuse("a Unicode property");
      case U'k':
        refuse("a back reference");
      default:
        break;
    }
    if (c >= U'1' && c <= U'9') refuse("a back reference");
    if ((c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z')) malformed("an unknown escape");
    return one(c);
  }

  const std::u32string pattern_;
  const std::string pointer_;
  std::size_t at_ = 0;
};

class RegexParser : private PatternReader {
 public:
  using PatternReader::PatternReader;

  Regex parse() {
    Regex out = parse_choice(0);
    if (has_more()) malformed("a parenthesis that closes nothing");
    return out;
  }

 private:
  static Regex set_of(CodePoints set) {
    return {.kind = Regex::Kind::Set, .set = normalized(std::move(set))};
  }

  Regex parse_choice(int depth) {
    if (depth > kMostNesting) refuse(concat("more than ", kMostNesting, " nested groups"));
    Regex choice{.kind = Regex::Kind::Choice};
    do {
      choice.parts.push_back(parse_sequence(depth));
    } while (take(U'|'));
    return choice.parts.size() == 1 ? std::move(choice.parts[0]) : std::move(choice);
  }

  Regex parse_sequence(int depth) {
    Regex sequence;
    while (has_more() && peek() != U'|' && peek() != U')') {
      sequence.parts.push_back(parse_repeat(parse_atom(depth)));
    }
    return sequence;
  }

  Regex parse_atom(int depth) {
    const char32_t c = next("an end");
    switch (c) {
      case U'^':
        return {.kind = Regex::Kind::Begin};
      case U'$':
        return {.kind = Regex::Kind::End};
      case U'.':
        return set_of(complement(kLineEnds));
      case U'[':
        return set_of(parse_class());
      case U'(':
        return parse_group(depth);
      case U'\\':
        return set_of(parse_escape(/*in_class=*/false));
      case U'*':
      case U'+':
      case U'?':
        malformed("a quantifier after nothing");
      case U'{':
      case U'}':
      case U']':
        malformed("a bracket without its partner");
      default:
        return set_of({{c, c}});
    }
  }

  Regex parse_group(int depth) {
    if (take(U'?')) {
      const char32_t kind = next("a group without an end");
      if (kind == U'<') {  // a named group, or look-behind
        if (has_more() && (peek() == U'=' || peek() == U'!')) refuse("look-behind");
        while (next("a group name without an end") != U'>') {
        }
      } else if (kind == U'=' || kind == U'!') {
        refuse("look-ahead");
      } else if (kind != U':') {
        refuse("flags in a group");
      }
    }
    Regex inner = parse_choice(depth + 1);
    if (!take(U')')) malformed("a group without an end");
    return inner;
  }

  std::uint32_t parse_number() {
    std::uint32_t value = 0;
    bool has_digit = false;
    while (has_more() && peek() >= U'0' && peek() <= U'9') {
      value = value * 10 + static_cast<std::uint32_t>(pattern_[at_++] - U'0');
      has_digit = true;
      if (value > kMostRepeats) refuse(concat("a count above ", kMostRepeats));
    }
    if (!has_digit) malformed("a quantifier without a number");
    return value;
  }

  Regex parse_repeat(Regex atom) {
    std::uint32_t least = 0, most = kNoMost;
    if (take(U'*')) {
    } else if (take(U'+')) {
      least = 1;
    } else if (take(U'?')) {
      most = 1;
    } else if (take(U'{')) {
      least = most = parse_number();
      if (take(U',')) most = has_more() && peek() == U'}' ? kNoMost : parse_number();
      if (!take(U'}')) malformed("a quantifier without an end");
      if (most < least) malformed("a quantifier whose bounds are exchanged");
    } else {
      return atom;
    }
    take(U'?');  // lazy
    if (atom.kind == Regex::Kind::Begin || atom.kind == Regex::Kind::End) {
      malformed("a quantifier of an anchor");
    }
    if (has_more() && (peek() == U'*' || peek() == U'+' || peek() == U'?' || peek() == U'{')) {
      malformed("two quantifiers in a row");
    }
    Regex out{.kind = Regex::Kind::Repeat, .least = least, .most = most};
    out.parts.push_back(std::move(atom));
    return out;
  }

  CodePoints parse_class() {
    const bool is_negated = take(U'^');
    CodePoints set;
    while (!take(U']')) {
      const CodePoints low = parse_class_atom();
      const bool is_range =
          at_ + 1 < pattern_.size() && peek() == U'-' && pattern_[at_ + 1] != U']';
      if (!is_range) {
        set.insert(set.end(), low.begin(), low.end());
        continue;
      }
      ++at_;
      const CodePoints high = parse_class_atom();
      const auto is_one = [](const CodePoints& s) {
        return s.size() == 1 && s[0].first == s[0].second;
      };
      if (!is_one(low) || !is_one(high)) malformed("a range between sets");
      if (low[0].first > high[0].first) malformed("a range whose ends are exchanged");
      set.emplace_back(low[0].first, high[0].first);
    }
    return is_negated ? complement(set) : normalized(set);
  }

  CodePoints parse_class_atom() {
    const char32_t c = next("a class without an end");
    if (c == U'\\') return parse_escape(/*in_class=*/true);
    return {{c, c}};
  }
};

}  // namespace

Regex parse_regex(std::string_view pattern, std::string_view pointer) {
  if (pattern.size() > kMostBytes) {
    refuse_schema(pointer, concat("The keyword \"pattern\" has more than ", kMostBytes, " bytes."));
  }
  std::u32string points;
  while (!pattern.empty()) {
    const text::CodePoint point = text::decode_utf8(pattern);
    points.push_back(point.value);
    pattern.remove_prefix(static_cast<std::size_t>(std::max(1, point.bytes)));
  }
  return RegexParser(std::move(points), pointer).parse();
}

}  // namespace hone::infer::grammar
