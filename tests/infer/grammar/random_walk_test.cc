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

  Json make_number(const char* type) {
    Json schema = {{"type", type}};
    const double low = below(2000) / 8.0 - 100;
    if (below(2) == 0) schema[below(2) == 0 ? "minimum" : "exclusiveMinimum"] = low;
    if (below(2) == 0)
      schema[below(2) == 0 ? "maximum" : "exclusiveMaximum"] = low + below(900) + 2;
    return schema;
  }
  Json make_string() {
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
  Json make_inner(int depth, bool references = true) {
    switch (below(depth > 0 ? 11 : 5)) {
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
        return make_array(depth);
      case 6:
      case 7:
        return make_object(depth);
      case 8:
        return {{"anyOf", {make_inner(depth - 1), make_inner(depth - 1), make_object(depth - 1)}}};
      case 9: {  // a base and alternatives
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
      const std::string text = test::random_text(compiled, vocabulary, random, 300);
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
  EXPECT_EQ(result["invalid"], Json::array());
  std::printf("%d texts judged by jsonschema\n", result["texts"].get<int>());
}

}  // namespace
}  // namespace hone::infer::grammar
