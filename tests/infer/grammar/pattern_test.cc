// SPDX-License-Identifier: Apache-2.0
// Patterns and formats: their automata against Python's re and hand-made cases, and patterns that
// are made to break the compiler.
#include "hone/infer/grammar/pattern/automaton.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/infer/grammar/pattern/formats.h"
#include "hone/text/unicode/utf8.h"
#include "tests/infer/grammar/grammar_support.h"
#include "tests/support/peer.h"
#include "tests/support/resident_memory.h"
#include "tests/support/test_data.h"

namespace hone::infer::grammar {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StrEq;
using namespace std::string_view_literals;

// A pattern and the texts that it is tried on: those over the alphabet of at most this length.
struct PatternCase {
  const char* pattern;
  std::u32string_view alphabet;
  int length;
};

constexpr PatternCase kPatternCases[] = {
    // Anchors, also in one alternative only, within groups and where they cannot hold.
    {"", U"abc"sv, 3},
    {"b", U"abc"sv, 4},
    {"^a", U"abc"sv, 4},
    {"a$", U"abc"sv, 4},
    {"^$", U"abc"sv, 3},
    {"^abc$", U"abc"sv, 4},
    {"^a|b$", U"abc"sv, 5},
    {"^(a|b$)", U"abc"sv, 5},
    {"(^a|b)c", U"abc"sv, 5},
    {"a(b|$)", U"abc"sv, 5},
    {"^(a|^b)c$", U"abc"sv, 4},
    {"a^b", U"abc"sv, 4},
    {"a$|^b", U"abc"sv, 5},
    {"(^)a($)", U"abc"sv, 4},
    {"(^a)*b", U"abc"sv, 5},
    {"(a$)?", U"abc"sv, 3},
    {"($|b)c", U"abc"sv, 4},
    {"^^a$$", U"abc"sv, 3},
    // Quantifiers, greedy and lazy, and loops that can be empty.
    {"a*b+c?$", U"abc"sv, 5},
    {"(ab|a)(bc|c)$", U"abc"sv, 5},
    {"^(a|b)*abb", U"abc"sv, 5},
    {"^(aa|aaa)+$", U"abc"sv, 5},
    {"aa{2}b", U"abc"sv, 5},
    {"^a{2,3}$", U"abc"sv, 5},
    {"^a{2,}b{0,1}$", U"abc"sv, 5},
    {"^a{0}b$", U"abc"sv, 4},
    {"^(a{1,2}){2}$", U"abc"sv, 5},
    {"^a+?b*?c??$", U"abc"sv, 5},
    {"^(|a)b", U"abc"sv, 4},
    {"^(a|)+c", U"abc"sv, 5},
    {"^(a*)*b$", U"abc"sv, 5},
    {"^(a?){3}b$", U"abc"sv, 5},
    {"^((a+)+)+b$", U"abc"sv, 5},
    {"(?:a|b)c", U"abc"sv, 5},
    {"(?<first>a)b", U"abc"sv, 4},
    {"((a)|(b))*c$", U"abc"sv, 5},
    // Classes and escapes.
    {"[ab]c", U"abc"sv, 5},
    {"^[^ab]*$", U"abc"sv, 5},
    {"[a-b]{3}", U"abc"sv, 5},
    {"^[^]$", U"abc"sv, 3},
    {"[]|a", U"abc"sv, 3},
    {"[]", U"abc"sv, 3},
    {"[a-]$", U"a-]"sv, 4},
    {R"(^[-\]]+$)", U"a-]"sv, 4},
    {R"(^[a\-c]+$)", U"abc-"sv, 4},
    {"^[$^.]+$", U"$^.a"sv, 4},
    {R"(\$|\^\.)", U"$^.a"sv, 4},
    {R"(^\/a\/$)", U"/a"sv, 4},
    {R"(^(\+|-)?1(\.1+)?$)", U"+-1."sv, 5},
    {R"(^\(\[\]\)$)", U"()[]"sv, 4},
    {R"(^[{}*]+\?\|$)", U"{*?|"sv, 4},
    {"^.{2}$", U"a\n\r\u2028"sv, 4},
    {"a.b", U"ab\n\u00e9"sv, 4},
    {R"(\d\D)", U"1a\u0663"sv, 4},
    {R"(^\w+$)", U"a_1-\u00e9"sv, 4},
    {R"(\W$)", U"a_1-\u00e9"sv, 4},
    {R"(^\s+$)", U" \t\u00a0\ufeff\u001c"sv, 4},
    {R"(\Sb$)", U"b \u3000\u0085"sv, 4},
    {R"(^[\s1]+$)", U"1 \n\u2003a"sv, 4},
    // Characters that strings spell with a backslash.
    {R"(^["\\]+$)", U"\"\\a\n"sv, 5},
    {R"(\\")", U"\"\\a\n"sv, 5},
    {R"(^[^"]+$)", U"\"\\a"sv, 4},
    {R"([\x00-\x1f]$)", U"\0\u001f a\t"sv, 4},
    {R"(\u0000|\n)", U"\0\n\u0001n"sv, 4},
    {R"(^[\b\f]+$)", U"\b\fbf\\"sv, 4},
    {R"(\cJ|\cm)", U"\n\rJM"sv, 4},
    {R"(^\0$)", U"0\0"sv, 3},
    {"\x7f$", U"\u007f\u0001\u0080"sv, 3},
    // All lengths of UTF-8, at their borders.
    {R"(\u00e9$)", U"\u00e9e\u00e8"sv, 4},
    {"^[\u00e0-\u00fc]+$", U"\u00e0\u00fc\u00df\u00fd"sv, 4},
    {R"(^[^\u0000-\u007f]$)", U"a\u0080\u0800\U00010000"sv, 3},
    {R"(^[\u07ff\u0800]+$)", U"\u07fe\u07ff\u0800\u0801"sv, 3},
    {R"([\ud7ff-\ue000]$)", U"\ud7fe\ud7ff\ue000\ue001"sv, 3},
    {R"(^[\uffff-\u{10000}]+$)", U"\ufffe\uffff\U00010000\U00010001"sv, 3},
    {R"(^[\u{10fffe}-\u{10ffff}])", U"\U0010fffe\U0010ffff\U000ffffd"sv, 3},
    {R"(^\u{1F600}+$)", U"\U0001f600\U0001f601a"sv, 4},
    {R"(\ud83d\ude00a)", U"\U0001f600\U0001f601a"sv, 4},
    {"^.$", U"\U0001f600\u00e9a"sv, 3},
    {R"(^[\u0410-\u042f][\u0430-\u044f]*$)", U"\u0410\u042f\u0430\u044fa"sv, 4}};

constexpr std::string_view kEnforcedFormats[] = {"date", "time",  "date-time",    "duration",
                                                 "uuid", "email", "hostname",     "ipv4",
                                                 "ipv6", "uri",   "uri-reference"};

std::string utf8_of(char32_t point) {
  std::string bytes;
  text::append_utf8(bytes, point);
  return bytes;
}

// Shorter ones first; the last character changes fastest.
std::vector<std::string> texts_of(const PatternCase& pattern_case) {
  std::vector<std::string> texts = {""};
  std::size_t begin = 0;
  for (int length = 0; length < pattern_case.length; ++length) {
    const std::size_t end = texts.size();
    for (std::size_t i = begin; i < end; ++i) {
      for (const char32_t point : pattern_case.alphabet) {
        texts.push_back(texts[i] + utf8_of(point));
      }
    }
    begin = end;
  }
  return texts;
}

Json schema_of_pattern(std::string_view pattern) {
  return {{"type", "string"}, {"pattern", std::string(pattern)}};
}

// "1" for each text that the schema accepts, "0" for the others.
std::string verdicts_on(const Json& schema, const std::vector<std::string>& texts) {
  std::string verdicts(texts.size(), '0');
  std::shared_ptr<const JsonSchema> compiled;
  try {
    compiled = JsonSchema::compile(schema.dump());
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("No value satisfies")) << schema;
    return verdicts;
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (test::accepts(compiled, spell_string(texts[i]))) verdicts[i] = '1';
  }
  return verdicts;
}

// The verdicts of Python on the texts of all cases.
std::vector<std::string> python_verdicts() {
  Json cases = Json::array();
  for (const PatternCase& pattern_case : kPatternCases) {
    Json alphabet = Json::array();
    for (const char32_t point : pattern_case.alphabet) alphabet.push_back(utf8_of(point));
    cases.push_back({{"pattern", pattern_case.pattern},
                     {"alphabet", alphabet},
                     {"length", pattern_case.length}});
  }
  const hone::test::TemporaryFolder folder;
  write_json_file(folder.path() / "cases.json", cases);
  const std::string report = hone::test::run_peer("tests/infer/grammar/pattern_oracle.py",
                                                  {(folder.path() / "cases.json").string()});
  return parse_json(report, "pattern_oracle.py").get<std::vector<std::string>>();
}

std::string both_of(const std::string& a, const std::string& b) {
  std::string verdicts(a.size(), '0');
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == '1' && b[i] == '1') verdicts[i] = '1';
  }
  return verdicts;
}

TEST(Pattern, is_found_in_the_texts_in_which_python_finds_it) {
  HONE_REQUIRE_PEER("re");
  const std::vector<std::string> expected = python_verdicts();
  ASSERT_EQ(expected.size(), std::size(kPatternCases));
  std::size_t texts_tried = 0, found = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const PatternCase& pattern_case = kPatternCases[i];
    const std::vector<std::string> texts = texts_of(pattern_case);
    ASSERT_EQ(expected[i].size(), texts.size()) << pattern_case.pattern;
    const std::string verdicts = verdicts_on(schema_of_pattern(pattern_case.pattern), texts);
    for (std::size_t t = 0; t < texts.size(); ++t) {
      ASSERT_EQ(verdicts[t], expected[i][t])
          << pattern_case.pattern << " in " << spell_string(texts[t]);
    }
    texts_tried += texts.size();
    found += static_cast<std::size_t>(std::ranges::count(expected[i], '1'));
  }
  EXPECT_GT(texts_tried, 20'000u);
  EXPECT_GT(found, 4'000u);
  std::printf("%zu texts, found in %zu\n", texts_tried, found);
}

TEST(Pattern, lengths_and_other_patterns_beside_it_hold_too) {
  HONE_REQUIRE_PEER("re");
  const std::vector<std::string> found = python_verdicts();
  ASSERT_EQ(found.size(), std::size(kPatternCases));
  for (std::size_t i = 0; i < found.size(); ++i) {
    const PatternCase& pattern_case = kPatternCases[i];
    const std::vector<std::string> texts = texts_of(pattern_case);
    Json schema = schema_of_pattern(pattern_case.pattern);
    schema["minLength"] = 1;
    schema["maxLength"] = 2;
    const std::size_t symbols = pattern_case.alphabet.size();
    std::string expected = found[i];  // one text of no character, then those of one, of two, …
    expected[0] = '0';
    std::fill(expected.begin() + static_cast<std::ptrdiff_t>(1 + symbols + symbols * symbols),
              expected.end(), '0');
    EXPECT_EQ(verdicts_on(schema, texts), expected) << schema;
    const std::size_t other = (i + 1) % found.size();
    if (kPatternCases[other].alphabet != pattern_case.alphabet) continue;
    if (kPatternCases[other].length < pattern_case.length) continue;
    schema = schema_of_pattern(pattern_case.pattern);
    schema["allOf"].push_back(schema_of_pattern(kPatternCases[other].pattern));
    EXPECT_EQ(verdicts_on(schema, texts), both_of(found[i], found[other])) << schema;
  }
}

struct PatternTexts {
  const char* keywords;
  std::vector<const char*> good, bad;
};

// The good texts that a string with these keywords refuses, and the bad ones that it accepts.
std::vector<std::string> misjudged_strings(const PatternTexts& cases) {
  const auto schema = JsonSchema::compile(concat(R"({"type":"string",)", cases.keywords, "}"));
  std::vector<std::string> texts;
  for (const char* text : cases.good) {
    if (!test::accepts(schema, text)) texts.emplace_back(text);
  }
  for (const char* text : cases.bad) {
    if (test::accepts(schema, text)) texts.emplace_back(text);
  }
  return texts;
}

TEST(Pattern, is_searched_for_unless_it_is_anchored) {
  for (const PatternTexts& cases : std::vector<PatternTexts>{
           {R"("pattern":"b+")", {R"("b")", R"("abba")"}, {R"("")", R"("aca")", "1", "b"}},
           {R"("pattern":"^b+")", {R"("bba")"}, {R"("ab")"}},
           {R"("pattern":"b+$")", {R"("abb")"}, {R"("ba")", R"("b\n")"}},
           {R"("pattern":"^x|y$")", {R"("xa")", R"("ay")"}, {R"("ax")", R"("ya")"}},
           {R"("pattern":"^(red|green)$")", {R"("red")"}, {R"("redgreen")", R"("Red")"}},
           {R"("pattern":"^[A-Z]{2}\\d{3,}$")", {R"("AB123")", R"("AB1234")"}, {R"("AB12")"}},
           {R"("pattern":"^\\u{1F600}\\ud83d\\ude00$")",
            {"\"\xf0\x9f\x98\x80\xf0\x9f\x98\x80\""},
            {"\"\xf0\x9f\x98\x80\"", R"("\ud83d\ude00\ud83d\ude00")"}}}) {
    EXPECT_THAT(misjudged_strings(cases), IsEmpty()) << cases.keywords;
  }
}

TEST(Pattern, characters_beside_it_have_one_spelling) {
  EXPECT_THAT(misjudged_strings({R"("pattern":"")",
                                 {R"("\" \\ \b \f \n \r \t")", R"("\u0000\u001f")", "\"/\x7f\"",
                                  "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
                                 {R"("\/")", R"("\u0041")", R"("\u000a")", R"("\u001F")",
                                  R"("\u00e9")", R"("\u0022")", R"("\ud83d\ude00")", R"("\x")"}}),
              IsEmpty());
}

TEST(Pattern, texts_beside_it_are_valid_utf8) {
  for (const char* keyword : {R"("pattern":"")", R"("pattern":"^[^]*$")", R"("pattern":"[^a]")"}) {
    EXPECT_THAT(
        misjudged_strings({keyword,
                           {"\"\xed\x9f\xbf\"", "\"\xee\x80\x80\"", "\"\xf4\x8f\xbf\xbf\""},
                           {"\"\xc0\x80\"", "\"\xc1\xbf\"", "\"\xe0\x9f\xbf\"", "\"\xed\xa0\x80\"",
                            "\"\xf0\x8f\xbf\xbf\"", "\"\xf4\x90\x80\x80\"", "\"\x80\"", "\"\xc3\"",
                            "\"\xff\"", "\"\n\"", "\"b", "\"b\"\""}}),
        IsEmpty())
        << keyword;
  }
}

TEST(Pattern, lengths_beside_it_count_characters) {
  EXPECT_THAT(misjudged_strings({R"("pattern":"^[\n\"é😀]*$","minLength":2,"maxLength":3)",
                                 {R"("\n\"")", "\"\xc3\xa9\xf0\x9f\x98\x80\\n\""},
                                 {R"("\n")", R"("\n\n\n\n")", "\"\xf0\x9f\x98\x80\"", R"("ab")"}}),
              IsEmpty());
  EXPECT_THAT(misjudged_strings({R"("pattern":"a{2}","maxLength":4,"minLength":3)",
                                 {R"("baa")", R"("aaaa")", R"("\naa")"},
                                 {R"("aa")", R"("aabbb")", R"("aba")"}}),
              IsEmpty());
  EXPECT_THAT(test::refusal_of(R"({"type":"string","pattern":"^a{5}","maxLength":4})"),
              HasSubstr("No value satisfies"));
  const auto schema =
      JsonSchema::compile(R"({"type":"string","pattern":"^[a-z]*$","maxLength":65536})");
  const std::string most(65'536, 'a');
  EXPECT_TRUE(test::accepts(schema, concat("\"", most, "\"")));
  EXPECT_FALSE(test::accepts(schema, concat("\"", most, "a\"")));
}

TEST(Pattern, holds_for_literals_and_within_values) {
  EXPECT_TRUE(test::accepts(R"({"enum":["ab","b\n",1],"pattern":"^a"})", R"("ab")"));
  EXPECT_FALSE(test::accepts(R"({"enum":["ab","b\n",1],"pattern":"^a"})", R"("b\n")"));
  EXPECT_TRUE(test::accepts(R"({"enum":["ab","b\n",1],"pattern":"^a"})", "1"));
  EXPECT_TRUE(test::accepts(R"({"const":"b\n","pattern":"\\n$"})", R"("b\n")"));
  const auto schema = JsonSchema::compile(
      R"({"type":"array","items":{"anyOf":[{"type":"string","pattern":"^a*$"},
          {"type":"string","pattern":"b$"},{"type":"string","maxLength":1},{"type":"null"}]}})");
  EXPECT_TRUE(test::accepts(schema, R"(["aaa","ab", "c",null,"","\u0041"])"));
  for (const char* text : {R"(["ac"])", R"(["aaa\u0062"])", R"(["aaa)", R"(["cc"])"}) {
    EXPECT_FALSE(test::accepts(schema, text)) << text;
  }
}

TEST(Format, texts_are_those_of_its_specification) {
  for (const PatternTexts& cases : std::vector<PatternTexts>{
           {R"("format":"date")",
            {R"("2024-02-29")", R"("2000-02-29")", R"("1999-12-31")", R"("2023-04-30")"},
            {R"("2023-02-29")", R"("1900-02-29")", R"("2024-13-01")", R"("2024-00-10")",
             R"("2024-04-31")", R"("2024-1-01")", R"("24-01-01")", R"("2024-01-011")", R"("")"}},
           {R"("format":"time")",
            {R"("23:59:59Z")", R"("00:00:00+05:30")", R"("12:00:00.125-08:00")"},
            {R"("24:00:00Z")", R"("12:60:00Z")", R"("12:00:00")", R"("12:00Z")",
             R"("12:00:00+24:00")", R"("12:00:00.Z")"}},
           {R"("format":"date-time")",
            {R"("2024-02-29T12:00:00Z")", R"("2999-12-31T23:59:59.9+01:00")"},
            {R"("2024-02-29")", R"("2024-02-30T12:00:00Z")", R"("2024-02-29T12:00:00")",
             R"("2024-02-29T25:00:00Z")"}},
           {R"("format":"duration")",
            {R"("P1D")", R"("P1Y2M3D")", R"("P2W")", R"("PT5M")", R"("P1DT12H")", R"("PT1H2M3S")"},
            {R"("P")", R"("PT")", R"("P1")", R"("1D")", R"("P1DT")", R"("P1Y2W")", R"("PT1D")",
             R"("P1S")"}},
           {R"("format":"uuid")",
            {R"("123e4567-e89b-12d3-a456-426614174000")",
             R"("123E4567-E89B-12D3-A456-426614174000")"},
            {R"("123e4567e89b12d3a456426614174000")", R"("g23e4567-e89b-12d3-a456-426614174000")",
             R"("123e4567-e89b-12d3-a456-42661417400")"}},
           {R"("format":"email")",
            {R"("a@b.co")", R"("first.last+tag@mail.example.com")"},
            {R"("a")", R"("@b.co")", R"("a@")", R"("a@b..co")", R"("a b@c.de")", R"(".a@b.co")",
             R"("a..b@c.de")", R"("a@-b.co")"}},
           {R"("format":"hostname")",
            {R"("localhost")", R"("a-b.example.com")", R"("1.example")"},
            {R"("")", R"("-a")", R"("a-")", R"(".a")", R"("a..b")", R"("a_b")"}},
           {R"("format":"ipv4")",
            {R"("0.0.0.0")", R"("255.255.255.255")", R"("192.168.1.10")"},
            {R"("256.0.0.1")", R"("1.2.3")", R"("1.2.3.4.5")", R"("01.2.3.4")", R"("1.2.3.-4")"}},
           {R"("format":"ipv6")",
            {R"("::")", R"("::1")", R"("1::")", R"("fe80::1")", R"("1:2:3:4:5:6:7:8")",
             R"("2001:db8::ff00:42:8329")"},
            {R"(":")", R"(":::")", R"("1:2:3:4:5:6:7")", R"("1::2::3")", R"("12345::")",
             R"("1:2:3:4:5:6:7:8:9")", R"("g::")"}},
           {R"("format":"uri")",
            {R"("https://example.com")", R"("http://a.b/c/d?x=1&y=%20#f")", R"("ftp://h:21/")"},
            {R"("example.com")", R"("http//a")", R"("http://a b")", R"("1http://a")",
             R"("http://a/%2")", R"("http://a/\"")"}},
           {R"("format":"uri-reference")", {R"("/a/b?x#y")"}, {R"("a b")", R"("/%")"}}}) {
    EXPECT_THAT(misjudged_strings(cases), IsEmpty()) << cases.keywords;
  }
}

TEST(Format, one_that_only_describes_admits_every_text_and_an_unknown_one_is_refused) {
  for (const char* format : {"password", "binary", "float", "double"}) {
    EXPECT_FALSE(pattern_of_format(format).has_value()) << format;
    EXPECT_TRUE(test::accepts(concat(R"({"format":")", format, R"("})"), R"("any text")"));
    EXPECT_TRUE(test::accepts(concat(R"({"format":")", format, R"("})"), "1.5"));
  }
  for (const std::string_view format : kEnforcedFormats) {
    EXPECT_TRUE(pattern_of_format(format).has_value()) << format;
    EXPECT_TRUE(test::accepts(concat(R"({"format":")", format, R"("})"), "1.5"));
    EXPECT_FALSE(test::accepts(concat(R"({"format":")", format, R"("})"), R"(" ")")) << format;
  }
  for (const char* format : {"iri", "idn-email", "regex", "int64", "", "Date"}) {
    const std::string schema = concat(R"({"properties":{"a":{"format":")", format, R"("}}})");
    EXPECT_THAT(test::refusal_of(schema), HasSubstr("At /properties/a: The keyword \"format\""));
  }
}

// How many of the states that can be reached from the start lead to no end.
std::size_t stuck_states(const Automaton& automaton) {
  if (automaton.is_empty()) return 0;
  std::map<Automaton::State, std::vector<Automaton::State>> sources = {{automaton.start(), {}}};
  std::vector<Automaton::State> found = {automaton.start()}, open;
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      const Automaton::State to = automaton.next(found[i], static_cast<std::uint8_t>(byte));
      if (to == Automaton::kDead) continue;
      const auto [at, is_new] = sources.try_emplace(to);
      if (is_new) found.push_back(to);
      at->second.push_back(found[i]);
    }
  }
  std::map<Automaton::State, bool> ends;
  for (const Automaton::State state : found) {
    if (automaton.accepts(state)) open.push_back(state);
    ends[state] = automaton.accepts(state);
  }
  while (!open.empty()) {
    const Automaton::State state = open.back();
    open.pop_back();
    for (const Automaton::State source : sources[state]) {
      if (!ends[source]) open.push_back(source);
      ends[source] = true;
    }
  }
  return static_cast<std::size_t>(
      std::ranges::count_if(ends, [](const auto& entry) { return !entry.second; }));
}

Automaton automaton_of_pattern(std::string_view pattern) {
  PatternBudget budget;
  return Automaton::of_regex(parse_regex(pattern, ""), "", budget);
}

Automaton at_least(const Automaton& automaton, std::uint32_t low) {
  PatternBudget budget;
  return automaton.at_least(low, "", budget);
}

Automaton intersect(const Automaton& a, const Automaton& b) {
  PatternBudget budget;
  return Automaton::intersect(a, b, "", budget);
}

TEST(Automaton, from_every_state_an_end_can_be_reached) {
  std::vector<std::string> patterns;
  for (const PatternCase& pattern_case : kPatternCases) patterns.push_back(pattern_case.pattern);
  for (const std::string_view format : kEnforcedFormats) {
    patterns.push_back(pattern_of_format(format).value());
  }
  std::optional<Automaton> before;
  for (const std::string& pattern : patterns) {
    const Automaton automaton = automaton_of_pattern(pattern);
    EXPECT_EQ(stuck_states(automaton), 0u) << pattern;
    EXPECT_EQ(stuck_states(at_least(automaton, 1)), 0u) << pattern;
    EXPECT_EQ(stuck_states(at_least(automaton, 7)), 0u) << pattern;
    if (before) {
      EXPECT_EQ(stuck_states(intersect(automaton, *before)), 0u) << pattern;
    }
    before = automaton;
  }
}

TEST(Automaton, one_without_texts_is_empty) {
  for (const char* pattern : {"[]", "a^", "$a", "a$b", "^(a[])+$"}) {
    EXPECT_TRUE(automaton_of_pattern(pattern).is_empty()) << pattern;
    EXPECT_FALSE(automaton_of_pattern(pattern).matches("")) << pattern;
  }
  const Automaton a = automaton_of_pattern("^a+$"), b = automaton_of_pattern("^b+$");
  EXPECT_TRUE(intersect(a, b).is_empty());
  EXPECT_TRUE(at_least(automaton_of_pattern("^a{3}$"), 4).is_empty());
  EXPECT_EQ(automaton_of_pattern("^a{3}$").missing_characters()[0], 3u);
  EXPECT_EQ(automaton_of_pattern("a|bb").missing_characters()[0], 1u);
  EXPECT_FALSE(at_least(a, 2).is_empty());
}

// A walk over the masks of one text. Returns whether the text ends within so many tokens.
bool walk_ends(const std::shared_ptr<const JsonSchema>& schema,
               const std::shared_ptr<const TokenVocabulary>& vocabulary, PhiloxStream& random,
               int most) {
  TokenConstraint constraint(schema, vocabulary);
  for (int i = 0; i < most; ++i) {
    if (constraint.is_complete()) return true;
    const TokenMask& mask = constraint.allowed();  // throws if there is no token
    std::vector<text::TokenId> allowed;
    for (text::TokenId id = 0; id < vocabulary->size(); ++id) {
      if (mask.allows(id)) allowed.push_back(id);
    }
    const auto id = allowed[random.below(static_cast<std::uint32_t>(allowed.size()))];
    if (vocabulary->is_stop(id)) return true;
    constraint.accept(id);
  }
  return constraint.is_complete();
}

TEST(Pattern, random_walks_over_masks_always_end) {
  const auto vocabulary = test::make_small_vocabulary();
  PhiloxStream random(17);
  std::vector<Json> schemas;
  for (const PatternCase& pattern_case : kPatternCases) {
    schemas.push_back(schema_of_pattern(pattern_case.pattern));
    schemas.back()["maxLength"] = 7;
  }
  for (const std::string_view format : kEnforcedFormats) {
    schemas.push_back({{"type", "string"}, {"format", std::string(format)}, {"maxLength", 38}});
  }
  int walks = 0;
  for (const Json& schema : schemas) {
    if (test::refusal_of(schema.dump()).find("No value") != std::string::npos) continue;
    const auto compiled = JsonSchema::compile(schema.dump());
    // Every token has a byte, and no character takes more than six.
    const int most = 6 * schema["maxLength"].get<int>() + 2;
    for (int walk = 0; walk < 12; ++walk, ++walks) {
      EXPECT_TRUE(walk_ends(compiled, vocabulary, random, most)) << schema;
    }
  }
  EXPECT_GT(walks, 900);
}

// Sanitizers make programs slower.
constexpr double kPatternSeconds = hone::test::kCountsMemory ? 2 : 60;

// The error of compiling a schema, which must come within kPatternSeconds of processor time.
std::string soon_refusal_of(const std::string& schema,
                            std::vector<std::string>* ignored = nullptr) {
  const std::clock_t begin = std::clock();
  const std::string error = hone::test::error_of([&] { JsonSchema::compile(schema, ignored); });
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, kPatternSeconds) << schema.substr(0, 200);
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  return error;
}

std::string repeated(std::string_view part, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += part;
  return out;
}

struct RefusedPattern {
  std::string pattern;
  const char* word;
};

TEST(HostilePattern, what_is_not_enforced_is_refused_by_name_and_place) {
  for (const RefusedPattern& refused :
       std::vector<RefusedPattern>{{std::string(4097, 'a'), "4096 bytes"},
                                   {repeated("\u00e9", 2049), "4096 bytes"},
                                   {"(a{1000}){1000}", "states"},
                                   {"(((((a{9}){9}){9}){9}){9}){9}", "states"},
                                   {repeated("(", 100) + "a" + repeated(")", 100), "nested groups"},
                                   {repeated("(?:", 1000) + repeated(")", 1000), "nested groups"},
                                   {"(?=x)", "look-ahead"},
                                   {"x(?!y)", "look-ahead"},
                                   {"(?<=x)y", "look-behind"},
                                   {"(?<!x)y", "look-behind"},
                                   {"(a)\\1", "back reference"},
                                   {"(?<n>a)\\k<n>", "back reference"},
                                   {"(?i)a", "flags"},
                                   {"(?i:a)", "flags"},
                                   {"\\p{Letter}", "property"},
                                   {"[\\P{L}]", "property"},
                                   {"\\bx", "boundary"},
                                   {"x\\B", "boundary"},
                                   {"x{1001}", "1000"},
                                   {"x{1,99999999999999999999}", "1000"}}) {
    const Json schema = {{"properties", {{"a/b", schema_of_pattern(refused.pattern)}}}};
    const std::string error = hone::test::refusal([&] { JsonSchema::compile(schema.dump()); },
                                                  ErrorCategory::Unsupported);
    EXPECT_THAT(error, HasSubstr(refused.word)) << refused.pattern.substr(0, 80);
    EXPECT_THAT(error, HasSubstr("At /properties/a~1b: The keyword \"pattern\""));
    soon_refusal_of(schema.dump());
  }
}

TEST(HostilePattern, what_is_malformed_is_an_invalid_argument_that_names_the_place) {
  for (const std::string& pattern : std::vector<std::string>{
           "\\",    "(",     ")",       "(a",          "a)",      "(a))",  "[a",   "[",
           "[^",    "[\\",   "[b-a]",   "[\\d-z]",     "[a-\\s]", "*",     "+a",   "a|?",
           "(*)",   "a**",   "a+*",     "a{1,2}{3}",   "a???",    "^*",    "$+",   "x{2,1}",
           "a{",    "a{}",   "a{,2}",   "a{1",         "a{1,",    "a{1,2", "{1}",  "a}",
           "]",     "\\u12", "\\u12g4", "\\u{110000}", "\\u{",    "\\xg0", "\\x1", "\\q",
           "[\\q]", "(?",    "(?<n",    "(?<n>a",      "\\c",     "a{x}"}) {
    const Json schema = {{"properties", {{"a/b", schema_of_pattern(pattern)}}}};
    const std::string error = hone::test::refusal([&] { JsonSchema::compile(schema.dump()); });
    EXPECT_THAT(error, HasSubstr("malformed")) << pattern;
    EXPECT_THAT(error, HasSubstr("/properties/a~1b")) << pattern;
    // It is wrong rather than unsupported, and so not ignored either.
    std::vector<std::string> ignored;
    EXPECT_THAT(soon_refusal_of(schema.dump(), &ignored), HasSubstr("malformed")) << pattern;
  }
  EXPECT_THAT(
      hone::test::refusal([] { JsonSchema::compile(R"({"type":"string","pattern":"[]"})"); }),
      HasSubstr("No value satisfies"));
}

TEST(HostilePattern, what_takes_many_states_compiles_or_is_refused_soon) {
  const std::string large[] = {std::string(4096, 'a'),
                               "^" + std::string(4095, 'a'),
                               repeated("a|", 2000),
                               repeated("(a*)", 1000),
                               repeated("(", 60) + "a+" + repeated(")+", 60),
                               repeated("(a|", 60) + "b" + repeated(")*", 60),
                               "(a+)+b",
                               "((a*)*)*",
                               "(a|a)*(a|a)*b",
                               "(.*){100}",
                               "(.*.*.*.*)*x",
                               "(){1000}",
                               "((|){1000}){1000}",
                               "^(a?){500}a{500}$",
                               "(a|b)*a(a|b){20}",
                               "(a|b)*a(a|b){1000}",
                               "^[\\s\\S]{0,300}$",
                               "^([^]|\\u{10000}){1000}$",
                               "[^]",
                               "(?<n>a)",
                               "(\\w+\\s?)*$"};
  for (const std::string& pattern : large) {
    for (const char* beside : {"", R"(,"maxLength":65536)", R"(,"minLength":65536)"}) {
      const std::string schema =
          concat(R"({"type":"string","pattern":)", Json(pattern).dump(), beside, "}");
      EXPECT_THAT(soon_refusal_of(schema),
                  AnyOf(StrEq("no error"), HasSubstr("states"), HasSubstr("No value")))
          << pattern.substr(0, 80) << beside;
    }
  }
  for (const char* pattern : {"(a+)+b", "[^]", "((a*)*)*", "(?<n>a)", "(){1000}"}) {
    EXPECT_EQ(test::refusal_of(schema_of_pattern(pattern).dump()), "no error") << pattern;
  }
}

TEST(HostilePattern, products_of_patterns_compile_or_are_refused_soon) {
  Json all = Json::array(), any = Json::array();
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    all.push_back(schema_of_pattern(std::string(1, letter)));
    if (letter <= 't') any.push_back(schema_of_pattern(std::string(1, letter)));
  }
  Json schema;
  schema["allOf"] = all;
  EXPECT_THAT(soon_refusal_of(schema.dump()), HasSubstr("states"));
  Json alternatives, product;
  alternatives["anyOf"] = any;
  for (int i = 0; i < 3; ++i) product["allOf"].push_back(alternatives);
  EXPECT_NE(soon_refusal_of(product.dump()), "no error");
}

// A schema of a few kilobytes must not keep a server busy for minutes.
TEST(HostilePattern, patterns_of_one_schema_are_limited_together) {
  Json large, exploding;
  for (int i = 0; i < 60; ++i) {
    const std::string name = concat("p", i);
    large["properties"][name] = schema_of_pattern(concat("^.{0,250}", i, "$"));
    exploding["properties"][name] = schema_of_pattern(concat("(a|b)*a(a|b){20}", i));
  }
  EXPECT_NE(soon_refusal_of(large.dump()), "no error");
  std::vector<std::string> ignored;
  soon_refusal_of(exploding.dump(), &ignored);
}

}  // namespace
}  // namespace hone::infer::grammar
