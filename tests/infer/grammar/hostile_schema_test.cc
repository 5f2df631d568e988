// SPDX-License-Identifier: Apache-2.0
// Schemas that are made to break the compiler: each ends with one error, or compiles, soon and in
// bounded memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/infer/grammar/grammar_support.h"

namespace hone::infer::grammar {
namespace {

using test::refusal_of;
using ::testing::HasSubstr;

std::string repeat(std::string_view part, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += part;
  return out;
}

// "<i>" in the part stands for the number.
std::string join(std::string_view part, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    if (i > 0) out += ',';
    for (std::size_t at = 0; at < part.size();) {
      const bool is_mark = part.substr(at).starts_with("<i>");
      out += is_mark ? concat(i) : std::string(1, part[at]);
      at += is_mark ? 3 : 1;
    }
  }
  return out;
}

TEST(HostileSchema, depth_is_limited) {
  for (const char* open :
       {"{\"items\":", "{\"anyOf\":[", "{\"properties\":{\"a\":", "[", "{\"a\":"}) {
    EXPECT_THAT(refusal_of(repeat(open, 10'000)), HasSubstr("levels deep"));
  }
  EXPECT_THAT(refusal_of(repeat("{\"items\":", 33) + "{}" + repeat("}", 33)),
              HasSubstr("levels deep"));
  EXPECT_EQ(refusal_of(repeat("{\"items\":", 31) + "{}" + repeat("}", 31)), "no error");
}

TEST(HostileSchema, size_and_number_of_rules_are_limited) {
  EXPECT_THAT(refusal_of("{\"anyOf\":[" + join("{\"const\":<i>}", 1'000'000) + "]}"),
              HasSubstr("262144 bytes"));
  EXPECT_THAT(refusal_of("{\"enum\":[" + join("<i>", 20'000) + "]}"), HasSubstr("10000"));
  EXPECT_THAT(refusal_of("{\"anyOf\":[" + join("{}", 20'000) + "]}"), HasSubstr("10000"));
  EXPECT_THAT(refusal_of("{\"properties\":{" + join("\"p<i>\":true", 15'000) + "}}"),
              HasSubstr("10000"));
  EXPECT_EQ(refusal_of("{\"enum\":[" + join("<i>", 9'000) + "]}"), "no error");
}

TEST(HostileSchema, alternatives_that_multiply_are_limited) {
  std::string defs;
  for (int i = 0; i < 30; ++i) {
    defs += concat(
        i == 0 ? "" : ",", "\"d", i,
        "\":{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":", "{\"$ref\":\"#/$defs/d",
        i + 1, "\"}}},{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":", "\"#/$defs/d", i + 1,
        "\"},\"b\":true}}]}");
  }
  defs += ",\"d30\":{\"const\":1}";
  const std::string doubling = "{\"$ref\":\"#/$defs/d0\",\"$defs\":{" + defs + "}}";
  const auto schema = JsonSchema::compile(doubling);
  Matcher matcher(schema);  // 2^30 readings of this text, of which it follows a limited number
  const std::string text = repeat("{\"a\":", 30);
  EXPECT_FALSE(matcher.advance(matcher.start(), repeat("{\"a\":", 5)).is_dead());
  EXPECT_TRUE(matcher.advance(matcher.start(), text).is_dead());
  // Products of alternatives: 80 x 80 x 80 shapes.
  std::string product = "{\"type\":\"string\",\"anyOf\":[" + join("{\"minLength\":<i>}", 80) + "]}";
  for (int i = 0; i < 5; ++i) {
    product = "{\"anyOf\":[" + product + "," + product + "],\"maxLength\":7}";
  }
  EXPECT_THAT(refusal_of(product), HasSubstr("more than 10000 subschemas"));
  EXPECT_THAT(refusal_of("{\"anyOf\":[" + join("{\"minLength\":<i>}", 100) + "]}"),
              HasSubstr("more than 64 different"));
}

TEST(HostileSchema, literals_that_multiply_are_limited) {
  const std::string large = "\"" + std::string(100'000, 'x') + "\"";
  const std::string schema =
      "{\"$defs\":{\"e\":{\"const\":" + large + "}},\"properties\":{" +
      join("\"p<i>\":{\"anyOf\":[{\"$ref\":\"#/$defs/e\"},{\"const\":<i>}]}", 1000) + "}}";
  EXPECT_THAT(refusal_of(schema), HasSubstr("memory"));
}

TEST(HostileSchema, references_without_progress_are_refused) {
  EXPECT_THAT(refusal_of(R"({"$ref":"#"})"), HasSubstr("defined by itself"));
  EXPECT_THAT(refusal_of(R"({"anyOf":[{"type":"null"},{"$ref":"#"}]})"),
              HasSubstr("defined by itself"));
  EXPECT_THAT(refusal_of(R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},
                             "b":{"$ref":"#/$defs/a"}}})"),
              HasSubstr("defined by itself"));
  std::string chain = "{\"$ref\":\"#/$defs/d0\",\"$defs\":{";
  for (int i = 0; i < 4000; ++i)
    chain += concat("\"d", i, "\":{\"$ref\":\"#/$defs/d", i + 1, "\"},");
  EXPECT_THAT(refusal_of(chain + "\"d4000\":{}}}"), HasSubstr("follow"));
}

TEST(HostileSchema, intersections_of_recursive_alternatives_end) {
  const std::string schema = R"({"$ref":"#/$defs/a","$defs":{
    "a":{"type":"array","items":{"$ref":"#/$defs/b"},
         "anyOf":[{"$ref":"#/$defs/b"},{"$ref":"#/$defs/c"}]},
    "b":{"items":{"$ref":"#/$defs/c"},"minItems":0},
    "c":{"items":{"$ref":"#/$defs/a"},"maxItems":5}}})";
  const std::string result = refusal_of(schema);
  EXPECT_TRUE(result == "no error" || result.find("JSON schema") != std::string::npos) << result;
}

TEST(HostileSchema, huge_counts_and_numbers_are_counted_or_refused) {
  EXPECT_THAT(refusal_of(R"({"minItems":1e30})"), HasSubstr("\"minItems\""));
  EXPECT_THAT(refusal_of(R"({"maxLength":2147483648})"), HasSubstr("\"maxLength\""));
  EXPECT_THAT(refusal_of(R"({"minimum":1e-99999})"), HasSubstr("exponent"));
  EXPECT_EQ(refusal_of(R"({"type":"number","minimum":-1e300,"maximum":1e300})"), "no error");
  EXPECT_THAT(refusal_of(R"({"type":"number","minimum":1e300})"), HasSubstr("No value"));
  EXPECT_EQ(refusal_of(R"({"type":"string","minLength":2147483647})"), "no error");
}

TEST(HostileSchema, malformed_texts_are_refused) {
  using std::string_literals::operator""s;
  for (const std::string& text :
       {""s, "{"s, "{}x"s, "{}\0"s, "{}\0{}"s, "\0"s, "{\"const\":\"\xff\"}"s,
        "{\"const\":\"\xc0\x80\"}"s, "{\"const\":\"\xed\xa0\x80\"}"s, "{\"const\":\"\\ud800\"}"s,
        "{\"type\":\"null\",\"type\":\"null\"}"s, "nul"s, "{\"minimum\":1e999}"s, "\xff\xfe"s}) {
    EXPECT_NE(refusal_of(text), "no error") << text;
  }
  EXPECT_TRUE(test::accepts(R"({"const":"\u0000"})", R"("\u0000")"));
  EXPECT_FALSE(test::accepts("true", "\"\0\""s));
  EXPECT_FALSE(test::accepts("true", "1\0"s));
}

}  // namespace
}  // namespace hone::infer::grammar
