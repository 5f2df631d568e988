// SPDX-License-Identifier: Apache-2.0
// Which texts a schema admits, by hand-made cases for each keyword.
#include "hone/infer/grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/infer/grammar/grammar_support.h"

namespace hone::infer::grammar {
namespace {

using test::accepts;
using test::refusal_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

struct Cases {
  const char* schema;
  std::vector<const char*> good, bad;
};

// The good texts that the schema refuses, and the bad ones that it accepts.
std::vector<std::string> misjudged(const Cases& cases) {
  const auto schema = JsonSchema::compile(cases.schema);
  std::vector<std::string> texts;
  for (const char* text : cases.good) {
    if (!accepts(schema, text)) texts.push_back(text);
  }
  for (const char* text : cases.bad) {
    if (accepts(schema, text)) texts.push_back(text);
  }
  return texts;
}

TEST(JsonSchema, types_admit_their_values_only) {
  EXPECT_THAT(
      misjudged({R"({"type":"null"})", {"null"}, {"", "nul", "0", "\"null\"", "nulll", " null"}}),
      IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"boolean"})", {"true", "false"}, {"True", "null", "1"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"integer"})",
                         {"0", "-1", "12345678901234567890123456789012"},
                         {"-0", "01", "1.0", "1.5", "1e3", "-", "+1",
                          "123456789012345678901234567890123"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"number"})",
                         {"0", "-1", "0.5", "-0.5", "1.50", "10.000"},
                         {"-0", "-0.0", ".5", "1.", "1e3", "00.5", "--1", "0.", "NaN"}}),
              IsEmpty());
  EXPECT_THAT(
      misjudged(
          {R"({"type":["string","null"]})", {"null", "\"\"", "\"null\""}, {"1", "[]", "true"}}),
      IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"array"})",
                         {"[]", "[1,\"a\",[],{}]", "[1, 2]"},
                         {"[1,]", "[,1]", "[1,  2]"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"object"})",
                         {"{}", R"({"a":1})", R"({"a": {"a": []}, "b": null})"},
                         {R"({"a":1,})", R"({"a"})", R"({"a" :1})", R"({"a":1,"a":2})", R"({ })",
                          R"({a:1})"}}),
              IsEmpty());
}

TEST(JsonSchema, strings_are_valid_utf8_with_valid_escapes) {
  EXPECT_THAT(misjudged({R"({"type":"string"})",
                         {R"("a\n\"\\\/\u0041")", R"("\ud83d\ude00")",
                          "\"\xc3\xa9\xf0\x9f\x98\x80\"", "\"\x7f\""},
                         {"\"\n\"", R"("\x")", R"("\u12")", R"("\ud83d")", R"("\ude00")",
                          R"("\ud83d\u0041")", "\"\xc3\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"",
                          "\"\xf4\x90\x80\x80\"", "\"\x80\"", "\"a"}}),
              IsEmpty());
}

TEST(JsonSchema, lengths_count_code_points_with_escapes_and_pairs_as_one) {
  EXPECT_THAT(misjudged({R"({"type":"string","minLength":2,"maxLength":3})",
                         {"\"ab\"", "\"\xf0\x9f\x98\x80\xc3\xa9z\"", R"("\ud83d\ude00\n")",
                          R"("\u00e9\u00e9\u00e9")"},
                         {"\"a\"", R"("\ud83d\ude00")", "\"abcd\"", R"("\n\n\n\n")", "\"\""}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"string","maxLength":0})", {"\"\""}, {"\"a\"", R"("\n")"}}),
              IsEmpty());
}

TEST(JsonSchema, integer_bounds_are_exact) {
  EXPECT_THAT(misjudged({R"({"type":"integer","minimum":-12,"maximum":105})",
                         {"-12", "-9", "-1", "0", "7", "99", "100", "105"},
                         {"-13", "-100", "106", "110", "200", "1000", "-0"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"integer","exclusiveMinimum":9223372036854775807})",
                         {"9223372036854775808", "10000000000000000000"},
                         {"9223372036854775807", "0", "-1"}}),
              IsEmpty());
  EXPECT_THAT(
      misjudged({R"({"type":"integer","minimum":0.5,"maximum":2.5})", {"1", "2"}, {"0", "3"}}),
      IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"integer","exclusiveMinimum":1,"maximum":3,"minimum":0})",
                         {"2", "3"},
                         {"1"}}),
              IsEmpty());
  EXPECT_THAT(refusal_of(R"({"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":2})"),
              HasSubstr("No value satisfies"));
}

TEST(JsonSchema, decimal_bounds_are_exact_where_doubles_are_not) {
  EXPECT_THAT(misjudged({R"({"type":"number","minimum":0.1,"exclusiveMaximum":0.3})",
                         {"0.1", "0.10", "0.2", "0.29999999999999999999999999999999"},
                         {"0.3", "0.30", "0.09", "0", "1", "0.31"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"number","exclusiveMinimum":0.1000000000000000000000001})",
                         {"0.10000000000000000000000011", "0.2", "1"},
                         {"0.1000000000000000000000001", "0.1"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"number","exclusiveMaximum":0})",
                         {"-0.1", "-5", "-0.01"},
                         {"0", "0.0", "-0"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"number","minimum":-1.5,"maximum":-1.25})",
                         {"-1.5", "-1.25", "-1.3", "-1.250"},
                         {"-1", "-1.2", "-1.51", "-2", "1.3"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"number","minimum":1e2,"maximum":1.5E2})",
                         {"100", "150.0"},
                         {"99", "150.01"}}),
              IsEmpty());
}

TEST(JsonSchema, properties_come_in_the_order_of_the_schema) {
  const char* schema = R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"null"},
    "ab":{"type":"boolean"}},"required":["a"],"additionalProperties":false})";
  EXPECT_THAT(
      misjudged({schema,
                 {R"({"a":null})", R"({"b":1,"a":null})", R"({"b": 1, "a": null, "ab": true})"},
                 {"{}", R"({"b":1})", R"({"a":null,"b":1})", R"({"a":null,"c":1})",
                  R"({"a":null,"a":null})", R"({"a":1})", R"({"ab":true})"}}),
      IsEmpty());
}

TEST(JsonSchema, other_properties_follow_and_never_repeat_a_name) {
  const char* schema = R"({"type":"object","properties":{"a":{"type":"integer"},"q\"":{}},
    "additionalProperties":{"type":"string"},"required":["a"]})";
  EXPECT_THAT(
      misjudged(
          {schema,
           {R"({"a":1,"x":"s","y":"t"})", R"({"a":1,"aa":"s"})", R"({"a":1,"q\"":[],"\\":""})",
            R"({"a":1,"\u001f":""})"},
           {R"({"x":"s"})", R"({"a":1,"x":1})", R"({"a":1,"x":"s","x":"t"})", R"({"x":"s","a":1})",
            R"({"a":1,"x":"s","a":1})", R"({"a":1,"q\"":1,"q\"":""})", R"({"a":1,"\u0061":""})",
            R"({"a":1,"\u001F":""})", R"({"a":1,"\u000a":""})", R"({"a":1,"x":"s","q\"":1})"}}),
      IsEmpty());
}

TEST(JsonSchema, required_names_without_a_schema_take_any_value) {
  EXPECT_THAT(
      misjudged(
          {R"({"type":"object","required":["z"]})", {R"({"z":[1]})", R"({"z":1,"a":2})"}, {"{}"}}),
      IsEmpty());
  EXPECT_THAT(refusal_of(R"({"type":"object","required":["z"],"additionalProperties":false})"),
              HasSubstr("No value satisfies"));
}

TEST(JsonSchema, arrays_have_prefixes_and_counts) {
  const char* schema = R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],
    "items":{"type":"boolean"},"minItems":1,"maxItems":3})";
  EXPECT_THAT(misjudged({schema,
                         {"[1]", "[1,\"a\"]", "[1, \"a\", true]"},
                         {"[]", "[\"a\"]", "[1,2]", "[1,\"a\",1]", "[1,\"a\",true,true]"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"array","maxItems":0})", {"[]"}, {"[1]", "["}}), IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"array","items":false})", {"[]"}, {"[1]"}}), IsEmpty());
}

TEST(JsonSchema, counts_are_counted_however_large) {
  const auto schema =
      JsonSchema::compile(R"({"type":"array","items":{"const":1},"minItems":2000000000})");
  Matcher matcher(schema);
  auto state = matcher.advance(matcher.start(), "[1");
  for (int i = 0; i < 1000; ++i) state = matcher.advance(state, ",1");
  EXPECT_FALSE(state.is_dead());
  EXPECT_TRUE(matcher.advance(state, "]").is_dead());
  const std::string most = "[1" + std::string() + ",1,1]";
  EXPECT_TRUE(accepts(R"({"type":"array","items":{"const":1},"minItems":3,"maxItems":3})", most));
}

TEST(JsonSchema, literals_have_one_spelling) {
  EXPECT_THAT(
      misjudged({R"({"enum":["a","ab",1,12,1.50,null,{"k":[1.0,"\u00e9"]},-0.0]})",
                 {"\"a\"", "\"ab\"", "1", "12", "1.5", "null", "{\"k\":[1,\"\xc3\xa9\"]}", "0"},
                 {"\"b\"", "2", "1.50", "123", "{\"k\": [1,\"\xc3\xa9\"]}", R"("\u0061")", "-0"}}),
      IsEmpty());
  EXPECT_THAT(misjudged({R"({"const":"x"})", {"\"x\""}, {"\"y\"", "x"}}), IsEmpty());
  EXPECT_THAT(
      misjudged(
          {R"({"type":"array","items":{"enum":[1,12]}})", {"[1,12,1]", "[12]"}, {"[2]", "[121]"}}),
      IsEmpty());
}

TEST(JsonSchema, keywords_beside_enum_and_any_of_hold_too) {
  EXPECT_THAT(misjudged({R"({"enum":[1,"a",2.5,null,20],"type":"number","maximum":10})",
                         {"1", "2.5"},
                         {"\"a\"", "null", "20"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"enum":[1,2,3],"const":2.0})", {"2"}, {"1", "3"}}), IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"string","anyOf":[{"maxLength":2},{"minLength":4}]})",
                         {"\"\"", "\"ab\"", "\"abcd\""},
                         {"\"abc\"", "1"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"object","properties":{"k":{"type":"integer"}},"required":["k"],
             "anyOf":[{"properties":{"k":{"minimum":5}}},{"properties":{"v":{"const":1}},
             "required":["v"]}]})",
                         {R"({"k":5})", R"({"k":1,"v":1})", R"({"k":7,"v":2})"},
                         {R"({"k":1})", R"({"k":1,"v":2})", R"({"v":1})", "5"}}),
              IsEmpty());
  EXPECT_THAT(
      misjudged({R"({"anyOf":[{"enum":[{"a":1,"b":2},{"a":2}]}],"properties":{"a":{"maximum":1}}})",
                 {R"({"a":1,"b":2})"},
                 {R"({"a":2})"}}),
      IsEmpty());
}

TEST(JsonSchema, alternatives_are_read_at_the_same_time) {
  EXPECT_THAT(
      misjudged(
          {R"({"anyOf":[{"type":"object","properties":{"t":{"const":"a"},"x":{"type":"integer"}},
             "required":["t","x"],"additionalProperties":false},
            {"type":"object","properties":{"t":{"const":"ab"},"y":{"type":"string"}},
             "required":["t","y"],"additionalProperties":false},
            {"type":"array","items":{"type":"integer"}},
            {"type":"array","items":{"type":"number","minimum":0.5}}]})",
           {R"({"t":"a","x":1})", R"({"t":"ab","y":""})", "[1,2]", "[1.5,2]", "[]"},
           {R"({"t":"a","y":""})", R"({"t":"ab","x":1})", "[0,1.5]", R"({"t":"a","x":1,"y":""})"}}),
      IsEmpty());
}

TEST(JsonSchema, references_may_be_recursive) {
  const char* tree = R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{
    "v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/node"}}},
    "required":["v"],"additionalProperties":false}}})";
  EXPECT_THAT(misjudged({tree,
                         {R"({"v":1})", R"({"v":1,"kids":[{"v":2,"kids":[]},{"v":3}]})"},
                         {R"({"kids":[]})", R"({"v":1,"kids":[{}]})", "[]"}}),
              IsEmpty());
  EXPECT_THAT(
      misjudged({R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]", "[{}]"}}),
      IsEmpty());
  EXPECT_THAT(
      misjudged({R"({"definitions":{"a/b":{"const":1},"c~d":{"const":2},"e%f":{"const":3}},"anyOf":[
             {"$ref":"#/definitions/a~1b"},{"$ref":"#/definitions/c~0d"},
             {"$ref":"#/definitions/e%25f"}]})",
                 {"1", "2", "3"},
                 {"4"}}),
      IsEmpty());
}

TEST(JsonSchema, values_that_never_end_are_not_begun) {
  const char* schema = R"({"type":"object","properties":{"a":{"$ref":"#/$defs/endless"},
    "b":{"type":"integer"}},"additionalProperties":false,
    "$defs":{"endless":{"type":"array","items":{"$ref":"#/$defs/endless"},"minItems":1}}})";
  const auto compiled = JsonSchema::compile(schema);
  Matcher matcher(compiled);
  EXPECT_TRUE(matcher.advance(matcher.start(), "{\"a").is_dead());
  EXPECT_TRUE(accepts(compiled, R"({"b":1})"));
  EXPECT_THAT(refusal_of(R"({"type":"object","properties":{"n":{"$ref":"#"}},"required":["n"]})"),
              HasSubstr("No value satisfies"));
  EXPECT_THAT(refusal_of("false"), HasSubstr("No value satisfies"));
}

TEST(JsonSchema, containers_nest_at_most_256_deep_and_can_always_be_closed) {
  Matcher matcher(JsonSchema::compile(R"({"type":"array","items":{"$ref":"#"}})"));
  auto state = matcher.advance(matcher.start(), std::string(256, '['));
  EXPECT_FALSE(state.is_dead());
  EXPECT_TRUE(matcher.advance(state, "[").is_dead());
  EXPECT_TRUE(matcher.is_accepting(matcher.advance(state, std::string(256, ']'))));
  // Each level needs another one inside, so that the last one that may begin is not the 256th.
  Matcher pairs(JsonSchema::compile(R"({"type":"array","items":{"type":"array","minItems":1,
      "maxItems":1,"items":{"anyOf":[{"$ref":"#"},{"const":[[]]}]}}})"));
  state = pairs.start();
  int depth = 0;
  while (!pairs.advance(state, "[").is_dead()) {
    state = pairs.advance(state, "[");
    ++depth;
  }
  EXPECT_GE(depth, 256);
  for (int left = 2 * depth + 16; left > 0 && !pairs.is_accepting(state); --left) {
    const auto closed = pairs.advance(state, "]");
    state = closed.is_dead() ? pairs.advance(state, "[") : closed;  // an element that is required
  }
  EXPECT_TRUE(pairs.is_accepting(state)) << depth;
}

TEST(JsonSchema, true_and_annotations_admit_everything) {
  for (const char* schema : {"true", "{}", R"({"title":"t","description":"d","default":1,
      "examples":[],"$comment":"c","$schema":"s","$id":"i","deprecated":true,"readOnly":true,
      "writeOnly":false})"}) {
    EXPECT_THAT(misjudged({schema, {"1", "null", "[{}]", R"({"a":"b"})"}, {"", "x", "[", "1 "}}),
                IsEmpty());
  }
}

TEST(JsonSchema, other_keywords_are_refused_by_name_and_place) {
  for (const char* keyword :
       {"pattern", "format", "multipleOf", "oneOf", "allOf", "not", "if", "uniqueItems", "contains",
        "patternProperties", "propertyNames", "minProperties", "dependentRequired", "$anchor",
        "additionalItems", "unevaluatedProperties", "nonsense", "$dynamicRef"}) {
    const std::string schema = concat(R"({"properties":{"a/b":{"items":{")", keyword, R"(":1}}}})");
    EXPECT_THAT(refusal_of(schema), HasSubstr(keyword));
    EXPECT_THAT(refusal_of(schema), HasSubstr("/properties/a~1b/items"));
  }
  EXPECT_THAT(refusal_of(R"({"properties":{"a":{"$id":"x"}}})"), HasSubstr("$id"));
  EXPECT_THAT(refusal_of(R"({"$ref":"#/$defs/a","type":"null","$defs":{"a":{}}})"),
              HasSubstr("\"type\" cannot be enforced beside"));
  EXPECT_THAT(refusal_of(R"({"$ref":"http://example.com/x"})"), HasSubstr("$ref"));
  EXPECT_THAT(refusal_of(R"({"$ref":"#/$defs/none","$defs":{}})"), HasSubstr("does not exist"));
  EXPECT_THAT(refusal_of(R"({"items":[{}]})"), HasSubstr("prefixItems"));
  EXPECT_THAT(refusal_of(R"({"type":"any"})"), HasSubstr("type"));
  EXPECT_THAT(refusal_of(R"({"minimum":1,"exclusiveMinimum":true})"), HasSubstr("draft 4"));
}

TEST(JsonSchema, keywords_that_cannot_be_enforced_are_ignored_and_named_on_request) {
  const char* schema = R"({"type":"object","oneOf":[{"pattern":1}],"required":["a/b"],
    "additionalProperties":false,
    "properties":{"a/b":{"type":"string","format":"date","pattern":"^x","minLength":2},
                  "c":{"minimum":1,"exclusiveMinimum":true,"items":[{}]},
                  "d":{"$ref":"#/$defs/n","type":"null"},"e":{"$ref":"https://example.com/x"}},
    "$defs":{"n":{"type":"integer","multipleOf":5},"unused":{"format":"x"}}})";
  EXPECT_THAT(refusal_of(schema), HasSubstr("At the root: The keyword \"oneOf\""));
  std::vector<std::string> ignored;
  const auto compiled = JsonSchema::compile(schema, &ignored);
  EXPECT_THAT(ignored, UnorderedElementsAre(
                           "/oneOf", "/properties/a~1b/format", "/properties/a~1b/pattern",
                           "/properties/c/exclusiveMinimum", "/properties/c/items",
                           "/properties/d/type", "/properties/e/$ref", "/$defs/n/multipleOf"));
  // What the other keywords say still holds.
  EXPECT_TRUE(accepts(compiled, R"({"a/b":"no date"})"));
  EXPECT_TRUE(accepts(compiled, R"({"a/b":"yy","c":1,"d":3,"e":[{}]})"));
  for (const char* text : {R"({"a/b":"y"})", R"({"c":1})", R"({"a/b":"yy","c":0})",
                           R"({"a/b":"yy","d":null})", R"({"a/b":"yy","f":1})"}) {
    EXPECT_FALSE(accepts(compiled, text)) << text;
  }
  ignored.clear();
  JsonSchema::compile(R"({"type":"string","title":"t"})", &ignored);
  EXPECT_THAT(ignored, IsEmpty());
  const auto refused = [&](const char* text) {
    return hone::test::error_of([&] { JsonSchema::compile(text, &ignored); });
  };
  // What is wrong rather than unsupported is refused all the same.
  EXPECT_THAT(refused(R"({"$ref":"#/$defs/none","$defs":{}})"), HasSubstr("does not exist"));
  EXPECT_THAT(refused(R"({"minLength":-1,"format":"x"})"), HasSubstr("/minLength"));
  EXPECT_THAT(refused(R"({"type":"any"})"), HasSubstr("type"));
}

TEST(JsonSchema, malformed_keywords_name_what_was_expected) {
  for (const auto& [schema, expected] :
       std::vector<std::pair<const char*, const char*>>{{R"({"minLength":-1})", "/minLength"},
                                                        {R"({"maxItems":1.5})", "/maxItems"},
                                                        {R"({"minimum":"1"})", "/minimum"},
                                                        {R"({"required":[1]})", "/required"},
                                                        {R"({"properties":[]})", "/properties"},
                                                        {R"({"anyOf":[]})", "/anyOf"},
                                                        {R"({"enum":1})", "/enum"},
                                                        {R"({"items":1})", "/items"},
                                                        {R"({"$ref":1})", "/$ref"},
                                                        {R"({"$defs":[]})", "/$defs"},
                                                        {"3", "the root"}}) {
    EXPECT_THAT(refusal_of(schema), HasSubstr(expected)) << schema;
  }
}

}  // namespace
}  // namespace hone::infer::grammar
