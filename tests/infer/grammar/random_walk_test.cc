// SPDX-License-Identifier: Apache-2.0
// Texts that are drawn from the masks satisfy their schema, by the judgment of another program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/core/file/json_io.h"
#include "tests/infer/grammar/grammar_support.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"

namespace hone::infer::grammar {
namespace {

// Found in texts of at most 8 characters, most of them in shorter ones.
constexpr const char* kDrawnPatterns[] = {"",
                                          "b",
                                          "^[a-z]+$",
                                          "^x|y$",
                                          "^$|^[A-Z]{2}$",
                                          "^(foo|ba[rz])?$",
                                          R"(\d{2,4})",
                                          R"(^\w+@\w+\.(com|org)$)",
                                          R"(["\\])",
                                          R"(^[^"\\]{1,5}$)",
                                          R"([\x00-\x1f])",
                                          R"(^[\b\t\cJ]+$)",
                                          R"(\n$)",
                                          R"(\u00e9)",
                                          R"(^[\u0400-\u04ff]+$)",
                                          "[é-ü]{2}",
                                          R"(^[^\u0000-\u007f]+$)",
                                          R"(^[\u{1F600}-\u{1F64F}])",
                                          R"(\ud83d\ude00$)",
                                          "^(?:a|b)*?c",
                                          R"(^(?<year>\d{4})-(?<month>\d\d)$)",
                                          R"(^\S+ \S+$)",
                                          R"(^\s|\s$)",
                                          "^.{3,6}$",
                                          "(a|ab)(c|bcd)",
                                          R"(^\/[\w\/-]*$)",
                                          R"(^[\]\[^-]+$)",
                                          R"(^\$\{\w+\}$)",
                                          R"(^(\+|-)?\d+(\.\d+)?$)",
                                          R"(^[^]{2}$)"};
constexpr const char* kDrawnFormats[] = {"date", "time",  "date-time",    "duration",
                                         "uuid", "email", "uri",          "hostname",
                                         "ipv4", "ipv6",  "uri-reference"};

// Draws schemas of all keywords, at most `depth` levels deep.
class SchemaMaker {
 public:
  explicit SchemaMaker(std::uint64_t seed) : random_(seed) {}

  Json make() {
    Json schema = make_inner(3);
    if (schema.is_object() && !schema.contains("$ref")) {
      schema["$defs"] = {
          {"leaf", make_inner(1, false)},
          {"tree", {{"type", "array"}, {"items", {{"$ref", "#/$defs/tree"}}}, {"maxItems", 2}}}};
    }
    return schema;
  }

 private:
  int below(int limit) {
    return static_cast<int>(random_.below(static_cast<std::uint32_t>(limit)));
  }
  double draw(std::initializer_list<double> numbers) {
    return *(numbers.begin() + below(static_cast<int>(numbers.size())));
  }
  template <std::size_t N>
  const char* draw(const char* const (&texts)[N]) {
    return texts[below(static_cast<int>(N))];
  }

  Json make_number(const char* type) {
    Json schema = {{"type", type}};
    const double low = below(2000) / 8.0 - 100;
    if (below(2) == 0) schema[below(2) == 0 ? "minimum" : "exclusiveMinimum"] = low;
    if (below(2) == 0)
      schema[below(2) == 0 ? "maximum" : "exclusiveMaximum"] = low + below(900) + 2;
    if (below(3) == 0) schema["multipleOf"] = draw({1.0, 0.1, 0.01, 1e-5});
    return schema;
  }
  Json make_multiple(const char* type) {
    const double low = below(400) / 4.0 - 50;
    return {{"type", type},
            {below(2) == 0 ? "minimum" : "exclusiveMinimum", low},
            {below(2) == 0 ? "maximum" : "exclusiveMaximum", low + 60},
            {"multipleOf", draw({2.0, 7.0, 0.5, 2.5, 0.3, 10.0, 1.25})}};
  }
  Json make_pattern() {
    Json schema = {{"type", "string"}, {"pattern", draw(kDrawnPatterns)}};
    if (below(2) == 0) schema["minLength"] = below(4);
    schema["maxLength"] = 8 + below(4);
    return schema;
  }
  Json make_format() {
    Json schema = {{"type", "string"}, {"format", draw(kDrawnFormats)}};
    if (below(6) == 0) schema["maxLength"] = 40;
    return schema;
  }
  Json make_string() {
    if (below(2) == 0) return below(2) == 0 ? make_pattern() : make_format();
    Json schema = {{"type", "string"}};
    const int low = below(4);
    if (below(2) == 0) schema["minLength"] = low;
    schema["maxLength"] = low + below(6);
    return schema;
  }
  Json make_array(int depth) {
    Json schema = {{"type", "array"}, {"items", make_inner(depth - 1)}};
    if (below(2) == 0) schema["minItems"] = below(3);
    schema["maxItems"] = 2 + below(2);
    if (below(3) == 0) schema["prefixItems"] = {make_inner(depth - 1), make_inner(depth - 1)};
    return schema;
  }
  Json make_object(int depth) {
    Json schema = {{"type", "object"}};
    for (const char* name : {"name", "id", "a\"b", "\xc3\xa9"}) {
      if (below(2) == 0) schema["properties"][name] = make_inner(depth - 1);
      if (below(4) == 0) schema["required"].push_back(name);
    }
    if (below(2) == 0) schema["additionalProperties"] = below(2) == 0;
    if (below(4) == 0) schema["additionalProperties"] = make_inner(depth - 1);
    return schema;
  }
  // An intersection: of objects, of strings or of numbers.
  Json make_all_of(int depth) {
    Json parts = Json::array();
    const int kind = below(4);
    for (int i = 0; i < 2; ++i) {
      if (kind < 2) parts.push_back(make_object(depth - 1));
      if (kind == 2) parts.push_back(i == 0 ? make_pattern() : make_string());
      if (kind == 3) parts.push_back(make_number("number"));
    }
    Json schema;
    schema["allOf"] = parts;
    return schema;
  }
  // Alternatives that a constant, a type or a bound tells apart.
  Json make_one_of(int depth) {
    Json parts = Json::array();
    for (const char* kind : {"circle", "square"}) {
      Json part = make_object(depth - 1);
      part["properties"]["kind"]["const"] = kind;
      part["required"].push_back("kind");
      parts.push_back(part);
    }
    if (below(2) == 0) parts.push_back(make_string());
    if (below(2) == 0) {
      const Json low = {{"type", "integer"}, {"maximum", 5}};
      const Json high = {{"type", "number"}, {"exclusiveMinimum", 5}, {"maximum", 70}};
      parts.push_back(low);
      parts.push_back(high);
    }
    Json schema;
    schema["oneOf"] = parts;
    schema["discriminator"]["propertyName"] = "kind";
    return schema;
  }
  Json make_inner(int depth, bool references = true) {
    switch (below(depth > 0 ? 16 : 8)) {
      case 0:
        return make_number("integer");
      case 1:
        return make_number("number");
      case 2:
        return make_string();
      case 3:
        return {{"enum", {1, "two", nullptr, {{"k", 2.5}}, Json::array({true})}}};
      case 4:
        return {{"type", {"boolean", "null", "integer"}}, {"minimum", below(50)}};
      case 5:
        return make_multiple(below(2) == 0 ? "integer" : "number");
      case 6:
        return make_pattern();
      case 7:
        return make_format();
      case 8:
        return make_array(depth);
      case 9:
      case 10:
        return make_object(depth);
      case 11:
        return make_all_of(depth);
      case 12:
        return make_one_of(depth);
      case 13:
        return {{"anyOf", {make_inner(depth - 1), make_inner(depth - 1), make_object(depth - 1)}}};
      case 14: {  // a base and alternatives
        Json schema = make_object(depth - 1);
        schema["anyOf"] = {make_object(depth - 1), {{"required", {"id"}}}, true};
        return schema;
      }
      default:
        if (!references) return true;
        return {{"$ref", below(2) == 0 ? "#/$defs/leaf" : "#/$defs/tree"}};
    }
  }
  PhiloxStream random_;
};

std::vector<Json> draw_cases(int schemas, int texts) {
  const auto vocabulary = test::make_small_vocabulary();
  std::vector<Json> cases;
  for (int i = 0; i < schemas; ++i) {
    const Json schema = SchemaMaker(static_cast<std::uint64_t>(i)).make();
    Json outputs = Json::array();
    std::shared_ptr<const JsonSchema> compiled;
    try {
      compiled = JsonSchema::compile(schema.dump());
    } catch (const Error& error) {  // only what really cannot be
      const std::string what = error.what();
      EXPECT_TRUE(what.find("No value") != std::string::npos ||
                  what.find("does not exist") != std::string::npos)
          << what << schema;
      continue;
    }
    PhiloxStream random(static_cast<std::uint64_t>(1000 + i));
    for (int j = 0; j < texts; ++j) {
      const std::string text = test::random_text(compiled, vocabulary, random, 500);
      if (!text.empty()) outputs.push_back(text);
    }
    cases.push_back({{"schema", schema}, {"texts", outputs}});
  }
  return cases;
}

TEST(RandomWalk, every_text_parses_without_a_repeated_name) {
  std::size_t texts = 0;
  for (const Json& item : draw_cases(80, 6)) {
    for (const Json& text : item["texts"]) {
      EXPECT_NO_THROW(parse_json(text.get<std::string>(), "output", {.depth = 300})) << text;
      ++texts;
    }
  }
  EXPECT_GT(texts, 300u);
}

TEST(RandomWalk, every_text_satisfies_its_schema_by_python_jsonschema) {
  HONE_REQUIRE_PEER("jsonschema");
  const hone::test::TemporaryFolder folder;
  write_json_file(folder.path() / "cases.json", draw_cases(300, 8));
  const std::string report = hone::test::run_peer("tests/infer/grammar/validate_texts.py",
                                                  {(folder.path() / "cases.json").string()});
  const Json result = parse_json(report, "validate_texts.py");
  EXPECT_GT(result["texts"].get<int>(), 1500);
  EXPECT_GT(result["strings"]["pattern"].get<int>(), 300);
  for (const char* format : kDrawnFormats) {
    EXPECT_TRUE(result["strings"].contains(format)) << format;
  }
  EXPECT_EQ(result["invalid"], Json::array());
  std::printf("%d texts judged by jsonschema\n", result["texts"].get<int>());
}

}  // namespace
}  // namespace hone::infer::grammar
