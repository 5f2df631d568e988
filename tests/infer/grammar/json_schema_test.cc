// SPDX-License-Identifier: Apache-2.0
// Which texts a schema admits, by hand-made cases for each keyword.
#include "hone/infer/grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

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
      "writeOnly":false,"example":1,"contentMediaType":"text/html","contentEncoding":"base64",
      "discriminator":{"propertyName":"a"}})"}) {
    EXPECT_THAT(misjudged({schema, {"1", "null", "[{}]", R"({"a":"b"})"}, {"", "x", "[", "1 "}}),
                IsEmpty());
  }
}

TEST(JsonSchema, other_keywords_are_refused_by_name_and_place) {
  for (const char* keyword :
       {"not", "if", "uniqueItems", "contains", "patternProperties", "propertyNames",
        "minProperties", "dependentRequired", "$anchor", "additionalItems", "unevaluatedProperties",
        "nonsense", "$dynamicRef"}) {
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
  const char* schema = R"({"type":"object","not":{"required":["z"]},"required":["a/b"],
    "additionalProperties":false,
    "properties":{"a/b":{"type":"string","format":"iri","pattern":"^(?=x).","minLength":2},
                  "c":{"minimum":1,"exclusiveMinimum":true,"items":[{}]},
                  "d":{"$ref":"#/$defs/n","type":"null"},"e":{"$ref":"https://example.com/x"},
                  "f":{"type":"array","uniqueItems":true,"maxItems":2},
                  "g":{"oneOf":[{"type":"integer"},{"type":"number","minimum":3}]}},
    "$defs":{"n":{"type":"integer","multipleOf":5},"unused":{"format":"x"}}})";
  EXPECT_THAT(refusal_of(schema), HasSubstr("At the root: The keyword \"not\""));
  std::vector<std::string> ignored;
  const auto compiled = JsonSchema::compile(schema, &ignored);
  EXPECT_THAT(ignored, UnorderedElementsAre(
                           "/not", "/properties/a~1b/format", "/properties/a~1b/pattern",
                           "/properties/c/exclusiveMinimum", "/properties/c/items",
                           "/properties/d/type", "/properties/e/$ref", "/properties/f/uniqueItems",
                           "/properties/g/oneOf", "/$defs/n/multipleOf"));
  // What the other keywords say still holds.
  EXPECT_TRUE(accepts(compiled, R"({"a/b":"no iri"})"));
  EXPECT_TRUE(accepts(compiled, R"({"a/b":"yy","c":1,"d":3,"e":[{}],"f":[1,1],"g":4})"));
  EXPECT_TRUE(accepts(compiled, R"({"a/b":"yy","g":3.5})"));
  for (const char* text :
       {R"({"a/b":"y"})", R"({"c":1})", R"({"a/b":"yy","c":0})", R"({"a/b":"yy","d":null})",
        R"({"a/b":"yy","d":1.5})", R"({"a/b":"yy","f":[1,1,1]})", R"({"a/b":"yy","g":2.5})",
        R"({"a/b":"yy","h":1})"}) {
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
  EXPECT_THAT(refused(R"({"pattern":"("})"), HasSubstr("malformed"));
  EXPECT_THAT(refused(R"({"pattern":1})"), HasSubstr("/pattern"));
  EXPECT_THAT(refused(R"({"multipleOf":0})"), HasSubstr("/multipleOf"));
  EXPECT_THAT(refused(R"({"oneOf":[]})"), HasSubstr("/oneOf"));
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

TEST(JsonSchema, malformed_values_of_combining_and_string_keywords_name_their_place) {
  for (const auto& [keyword, value, place] :
       std::vector<std::tuple<const char*, const char*, const char*>>{
           {"pattern", "1", "/pattern"},
           {"pattern", "null", "/pattern"},
           {"pattern", R"("a(")", ""},
           {"pattern", R"("[z-a]")", ""},
           {"format", "1", "/format"},
           {"format", R"(["date"])", "/format"},
           {"multipleOf", "0", "/multipleOf"},
           {"multipleOf", "-0.0", "/multipleOf"},
           {"multipleOf", "-2", "/multipleOf"},
           {"multipleOf", R"("2")", "/multipleOf"},
           {"oneOf", "1", "/oneOf"},
           {"oneOf", "[]", "/oneOf"},
           {"oneOf", "{}", "/oneOf"},
           {"oneOf", "[1]", "/oneOf/0"},
           {"allOf", "1", "/allOf"},
           {"allOf", "[]", "/allOf"},
           {"allOf", R"([{},"x"])", "/allOf/1"},
           {"allOf", R"([{"anyOf":[]}])", "/allOf/0/anyOf"}}) {
    const std::string schema =
        concat(R"({"properties":{"a/b":{"items":{")", keyword, "\":", value, "}}}}");
    const std::string error = hone::test::refusal([&] { JsonSchema::compile(schema); });
    EXPECT_THAT(error, HasSubstr(concat("At /properties/a~1b/items", place))) << schema;
  }
  // A string has no multiples, but the keyword is malformed all the same.
  EXPECT_THAT(
      hone::test::refusal([] { JsonSchema::compile(R"({"type":"string","multipleOf":0})"); }),
      HasSubstr("/multipleOf"));
}

TEST(JsonSchema, all_of_is_the_intersection) {
  for (
      const Cases& cases : std::vector<Cases>{
          {R"({"allOf":[{"type":"integer"},{"minimum":3},{"maximum":5}]})",
           {"3", "5"},
           {"2", "6", "3.0", "\"a\"", "null"}},
          {R"({"allOf":[{"enum":[1,2,"a",3]},{"enum":["a",3,4]},{"minimum":3}]})",
           {"3", "\"a\""},
           {"1", "4"}},
          {R"({"type":"string","allOf":[{"pattern":"^a"},{"pattern":"b$"},{"maxLength":3}]})",
           {R"("ab")", R"("axb")"},
           {R"("a")", R"("b")", R"("axxb")", R"("\u0061b")", "1"}},
          {R"({"allOf":[{"minLength":2},{"maxLength":3}],"type":"string"})",
           {R"("ab")", R"("\u0061b")"},
           {R"("a")", R"("abcd")"}},
          {R"({"allOf":[true,{"type":"null"}]})", {"null"}, {"1"}},
          // The properties of the first member come first.
          {R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},
               {"properties":{"b":{"type":"string"},"a":{"minimum":2}},"required":["b"]}],
               "type":"object"})",
           {R"({"a":2,"b":""})", R"({"a":2,"b":"x","c":null})"},
           {R"({"a":1,"b":""})", R"({"a":2})", R"({"b":"","a":2})", R"({"a":2,"b":1})"}},
          {R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},
               {"properties":{"b":{}}},{"type":"object"}]})",
           {"{}", R"({"a":1})"},
           {R"({"b":1})", R"({"a":1,"b":1})"}},
          {R"({"type":"array","allOf":[{"items":{"type":"integer"}},{"items":{"minimum":5}},
               {"minItems":1},{"maxItems":2}]})",
           {"[5]", "[6,7]"},
           {"[]", "[4]", "[5.5]", "[5,6,7]"}},
          {R"({"allOf":[{"anyOf":[{"const":1},{"const":2}]},{"anyOf":[{"const":2},{"const":3}]}]})",
           {"2"},
           {"1", "3"}},
          // A base that others extend, with a reference to the whole.
          {R"({"allOf":[{"$ref":"#/$defs/base"},{"properties":{"kids":{"type":"array",
               "items":{"$ref":"#"}}}}],"$defs":{"base":{"type":"object","properties":{
               "id":{"type":"integer"}},"required":["id"]}}})",
           {R"({"id":1,"kids":[{"id":2,"kids":[]},{"id":3}]})"},
           {R"({"id":1,"kids":[{}]})", R"({"kids":[]})", R"({"id":1,"kids":[1]})"}}}) {
    EXPECT_THAT(misjudged(cases), IsEmpty()) << cases.schema;
  }
  for (const char* schema :
       {R"({"allOf":[{"type":"null"},{"type":"string"}]})", R"({"allOf":[true,false]})",
        R"({"type":"string","allOf":[{"pattern":"^a$"},{"pattern":"^b$"}]})",
        R"({"type":"number","allOf":[{"maximum":1},{"exclusiveMinimum":1}]})"}) {
    EXPECT_THAT(hone::test::refusal([&] { JsonSchema::compile(schema); }),
                HasSubstr("No value satisfies"))
        << schema;
  }
}

TEST(JsonSchema, one_of_takes_alternatives_that_exclude_each_other) {
  for (const Cases& cases : std::vector<Cases>{
           {R"({"oneOf":[{"type":"integer"},{"type":"string"},{"type":"null"}]})",
            {"1", "\"a\"", "null"},
            {"1.5", "true", "[]"}},
           {R"({"oneOf":[{"type":"number","exclusiveMaximum":1},{"type":"integer","minimum":1}]})",
            {"0.5", "-3", "1", "2"},
            {"1.5"}},
           {R"({"oneOf":[{"type":"string","maxLength":1},{"type":"string","minLength":3}]})",
            {R"("a")", R"("abc")"},
            {R"("ab")"}},
           {R"({"oneOf":[{"const":"a","description":"A"},{"const":"b"},{"enum":[1,2]}]})",
            {R"("a")", R"("b")", "2"},
            {R"("c")", "3"}},
           {R"({"oneOf":[{"const":1},{"type":"integer","minimum":2}]})", {"1", "2", "7"}, {"0"}},
           {R"({"oneOf":[{"type":"array","maxItems":1},{"type":"array","minItems":3},
               {"type":"array","minItems":2,"maxItems":2,"items":{"type":"null"}}]})",
            {"[]", "[1]", "[1,2,3]", "[null,null]"},
            {"[1,2]"}},
           {R"({"oneOf":[{"type":"array","prefixItems":[{"const":"a"}],"minItems":1},
               {"type":"array","prefixItems":[{"const":"b"},{"type":"null"}],"minItems":1}]})",
            {R"(["a",1])", R"(["b",null])"},
            {R"(["b",1])", "[]", R"(["c"])"}},
           {R"({"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},
               "x":{"type":"integer"}},"required":["kind"]},{"type":"object","properties":{
               "kind":{"enum":["b","c"]}},"required":["kind"]}]})",
            {R"({"kind":"a","x":1})", R"({"kind":"b","x":"s"})", R"({"kind":"c"})"},
            {"{}", R"({"kind":"a","x":"s"})", R"({"kind":"d"})"}},
           {R"({"oneOf":[{"type":"object","properties":{"a":{}},"required":["a"],
               "additionalProperties":false},{"type":"object","properties":{"b":{}},
               "required":["b"],"additionalProperties":false}]})",
            {R"({"a":1})", R"({"b":1})"},
            {"{}", R"({"a":1,"b":1})"}},
           {R"({"oneOf":[{"type":"object","properties":{"a":{"const":1}}},
               {"type":"object","properties":{"a":{"const":2}},"required":["a"]}]})",
            {"{}", R"({"a":1})", R"({"a":2})", R"({"b":3})"},
            {R"({"a":3})"}},
           {R"({"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"$defs":{"a":{"type":"null"},
               "b":{"type":"boolean"}}})",
            {"null", "true"},
            {"1"}},
           {R"({"oneOf":[{"type":"integer"},{"type":"string"}],"maximum":3,"maxLength":1})",
            {"3", R"("a")"},
            {"4", R"("ab")"}},
           {R"({"oneOf":[{"oneOf":[{"type":"null"}]}]})", {"null"}, {"1"}},
           {R"({"oneOf":[{"type":"null"},false]})", {"null"}, {"1"}}}) {
    EXPECT_THAT(misjudged(cases), IsEmpty()) << cases.schema;
  }
}

// Expressions: each alternative has a required value of the same kind before what tells them apart.
TEST(JsonSchema, one_of_may_be_recursive) {
  const char* const schema = R"({"$ref":"#/$defs/e","$defs":{"e":{"oneOf":[
      {"type":"object","properties":{"left":{"$ref":"#/$defs/e"},"op":{"const":"add"},
       "right":{"$ref":"#/$defs/e"}},"required":["left","op","right"]},
      {"type":"object","properties":{"left":{"$ref":"#/$defs/e"},"op":{"const":"neg"}},
       "required":["left","op"]},
      {"type":"integer"}]}}})";
  EXPECT_THAT(misjudged({schema,
                         {"1", R"({"left":1,"op":"neg"})",
                          R"({"left":{"left":2,"op":"neg"},"op":"add","right":3})"},
                         {R"({"left":1,"op":"add"})", R"({"op":"neg"})", R"({"left":1})"}}),
              IsEmpty());
  std::vector<std::string> ignored;
  JsonSchema::compile(schema, &ignored);
  EXPECT_THAT(ignored, IsEmpty());
}

TEST(JsonSchema, one_of_may_be_behind_many_references) {
  std::string definitions;
  for (int i = 0; i < 20; ++i) {
    definitions += concat("\"r", i, "\":{\"$ref\":\"#/$defs/r", i + 1, "\"},");
  }
  const std::string schema = concat(R"({"$ref":"#/$defs/r0","$defs":{)", definitions,
                                    R"("r20":{"oneOf":[
      {"type":"object","properties":{"kind":{"const":1}},"required":["kind"]},
      {"type":"object","properties":{"kind":{"const":2}},"required":["kind"]}]}}})");
  EXPECT_EQ(refusal_of(schema), "no error");
}

TEST(JsonSchema, one_of_whose_alternatives_may_overlap_is_refused_by_place) {
  for (const char* one_of :
       {R"([{"type":"integer"},{"type":"number"}])", R"([{"type":"integer"},{"const":3.0}])",
        R"([{"enum":[1,2]},{"enum":[2,3]}])", R"([{},{"type":"null"}])", "[true,true]",
        R"([{"type":"number","maximum":1},{"type":"number","minimum":1}])",
        R"([{"type":"string","maxLength":2},{"type":"string","minLength":2}])",
        R"([{"type":"array","items":{"type":"null"}},{"type":"array","items":{"type":"string"}}])",
        R"([{"type":"object","required":["a"]},{"type":"object","required":["b"]}])",
        R"([{"const":{"b":1,"a":2}},{"const":{"a":2.0,"b":1}}])",
        R"([{"type":["null","integer"]},{"type":["null","string"]}])"}) {
    const std::string schema = concat(R"({"properties":{"a":{"oneOf":)", one_of, "}}}");
    EXPECT_THAT(
        hone::test::refusal([&] { JsonSchema::compile(schema); }, ErrorCategory::Unsupported),
        HasSubstr("At /properties/a: The keyword \"oneOf\""))
        << schema;
    std::vector<std::string> ignored;  // if it is ignored, it means "anyOf"
    const auto compiled = JsonSchema::compile(schema, &ignored);
    EXPECT_THAT(ignored, UnorderedElementsAre("/properties/a/oneOf")) << schema;
    EXPECT_TRUE(accepts(compiled, R"({"b":1})")) << schema;
  }
  std::vector<std::string> ignored;
  const auto compiled =
      JsonSchema::compile(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", &ignored);
  EXPECT_TRUE(accepts(compiled, "1"));
  EXPECT_TRUE(accepts(compiled, "1.5"));
  EXPECT_FALSE(accepts(compiled, "null"));
}

TEST(JsonSchema, multiples_of_powers_of_ten_limit_the_digits_after_the_point) {
  EXPECT_THAT(misjudged({R"({"type":"number","multipleOf":0.01})",
                         {"1", "1.5", "1.25", "-0.25", "1.20"},
                         {"1.255", "1.250", "1e2"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"multipleOf":1})", {"3", "-3", "\"a\"", "null"}, {"3.5", "3.0"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"integer","multipleOf":1e-8})", {"3", "-12"}, {"3.5"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"number","multipleOf":1E-1,"minimum":0.25,"maximum":0.5})",
                         {"0.3", "0.5"},
                         {"0.2", "0.25", "0.6"}}),
              IsEmpty());
  EXPECT_THAT(
      misjudged({R"({"enum":[1.5,1.25,2,"a"],"multipleOf":0.1})", {"1.5", "2", "\"a\""}, {"1.25"}}),
      IsEmpty());
  EXPECT_THAT(misjudged({R"({"allOf":[{"multipleOf":0.1},{"multipleOf":0.001}],"type":"number"})",
                         {"1.5"},
                         {"1.55"}}),
              IsEmpty());
}

TEST(JsonSchema, other_multiples_are_listed_between_bounds) {
  EXPECT_THAT(misjudged({R"({"type":"integer","multipleOf":5,"minimum":-7,"maximum":12})",
                         {"-5", "0", "5", "10"},
                         {"-10", "15", "3", "-0", "05", "5.0"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"number","multipleOf":0.25,"minimum":0,"exclusiveMaximum":1})",
                         {"0", "0.25", "0.5", "0.75"},
                         {"1", "0.2", "0.50", "-0.25"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"integer","multipleOf":1.5,"minimum":1,"maximum":9})",
                         {"3", "6", "9"},
                         {"1.5", "0", "4"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"multipleOf":20,"exclusiveMinimum":-40,"maximum":40})",
                         {"-20", "0", "40", "null", "\"a\""},
                         {"-40", "10", "60"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"allOf":[{"multipleOf":2,"minimum":0,"maximum":12},
                             {"multipleOf":3,"minimum":0,"maximum":20}],"type":"integer"})",
                         {"0", "6", "12"},
                         {"2", "3", "18"}}),
              IsEmpty());
  EXPECT_THAT(misjudged({R"({"type":"string","multipleOf":7})", {"\"a\""}, {"7"}}), IsEmpty());
  const auto up_to = [](int maximum) {
    return concat(R"({"type":"integer","multipleOf":2,"minimum":1,"maximum":)", maximum, "}");
  };
  EXPECT_TRUE(accepts(up_to(2000), "2000"));  // the last of 1000
  for (const std::string& schema :
       {up_to(2002), std::string(R"({"multipleOf":2})"),
        std::string(R"({"type":"integer","multipleOf":10,"minimum":0})"),
        std::string(R"({"multipleOf":1e-33})"),
        std::string(R"({"multipleOf":0.5,"minimum":-1e300,"maximum":1e300})"),
        std::string(R"({"multipleOf":3e-32,"minimum":0,"maximum":5})")}) {
    EXPECT_THAT(
        hone::test::refusal([&] { JsonSchema::compile(schema); }, ErrorCategory::Unsupported),
        HasSubstr("At the root: The keyword \"multipleOf\""))
        << schema;
  }
  EXPECT_THAT(refusal_of(R"({"type":"integer","multipleOf":7,"minimum":1,"maximum":6})"),
              HasSubstr("No value satisfies"));
}

}  // namespace
}  // namespace hone::infer::grammar
