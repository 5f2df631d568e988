// SPDX-License-Identifier: Apache-2.0
// What a trained model answers under schemas, sampled by `hone generate --prompts`, by the judgment
// of another program.
#include <gmock/gmock.h>

#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"
#include "tests/support/peer.h"

namespace hone::test {
namespace {

class SchemaAnswers : public Cli {};

// All can be answered within the context of the model.
const char* const kSchemas[] = {
    R"({"type":"object","properties":{"name":{"type":"string","minLength":1,"maxLength":20},
        "age":{"type":"integer","minimum":1,"maximum":120},
        "weight":{"type":"number","exclusiveMinimum":0,"maximum":99.5},
        "pets":{"type":"array","maxItems":3,"items":{"enum":["cat","dog",null]}}},
        "required":["name","age","weight","pets"],"additionalProperties":false})",
    R"({"anyOf":[{"type":"object","properties":{"kind":{"const":"town"},
        "people":{"type":"integer","minimum":0,"exclusiveMaximum":100000}},
        "required":["kind","people"],"additionalProperties":false},
        {"type":"object","properties":{"kind":{"const":"river"},
        "length":{"type":"number","minimum":0.5,"maximum":7000}},
        "required":["kind","length"],"additionalProperties":false},{"type":"null"}]})",
    R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{
        "label":{"type":"string","minLength":2,"maxLength":8},
        "children":{"type":"array","items":{"$ref":"#/$defs/leaf"},"maxItems":3}},
        "required":["label"],"additionalProperties":false},
        "leaf":{"type":"object","properties":{"v":{"type":"integer","minimum":-9,"maximum":9},
        "next":{"anyOf":[{"$ref":"#/$defs/end"},{"type":"boolean"}]}},
        "required":["v","next"],"additionalProperties":false},
        "end":{"type":"array","prefixItems":[{"enum":["x","y\n",1.5]},
        {"type":"string","maxLength":3}],"items":false,"minItems":2}}})",
    R"({"type":"array","minItems":2,"maxItems":5,"items":{"anyOf":[
        {"type":"string","minLength":3,"maxLength":10},
        {"type":"integer","minimum":-50,"maximum":50},
        {"type":"number","exclusiveMinimum":-2.5,"exclusiveMaximum":2.5},{"type":"boolean"}]}})",
    R"({"type":"object","properties":{"title":{"type":"string","minLength":5,"maxLength":30},
        "mood":{"enum":["happy","sad","very sad",0,{"a":[1,2]}]},
        "page":{"type":["integer","null"],"minimum":1,"maximum":300}},
        "required":["mood","title"],"additionalProperties":false})"};

TEST_F(SchemaAnswers, satisfy_their_schemas_by_python_jsonschema) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  HONE_REQUIRE_TEST_DATA(tokenizer, "lm/tok512.bin");
  HONE_REQUIRE_PEER("jsonschema");
  constexpr std::size_t kAnswers = 1000;
  std::string lines;
  std::vector<Json> schemas;
  for (std::size_t i = 0; i < kAnswers; ++i) {
    schemas.push_back(parse_json(kSchemas[i % std::size(kSchemas)], "schema"));
    const Json line{{"prompt", i % 2 == 0 ? "Once upon a time" : "Lily had a card:"},
                    {"json_schema", schemas.back()},
                    {"seed", i},
                    {"temperature", 0.8 + 0.1 * static_cast<double>(i % 8)}};
    lines += line.dump() + "\n";
  }
  write_text_file(path("prompts.jsonl"), lines);
  const ProgramResult result =
      run_hone({"generate", model.string(), "--tokenizer", tokenizer.string(), "--prompts",
                path("prompts.jsonl"), "--output", path("answers.jsonl"), "-n", "500"});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string answers = read_text_file(path("answers.jsonl"));
  Json cases = Json::array();
  for (std::size_t at = 0; at < answers.size(); at = answers.find('\n', at) + 1) {
    const Json answer = parse_json(answers.substr(at, answers.find('\n', at) - at), "answer");
    EXPECT_EQ(answer["finish_reason"], "stop") << answer;
    cases.push_back({{"schema", schemas.at(cases.size())}, {"texts", {answer["text"]}}});
  }
  EXPECT_EQ(cases.size(), kAnswers);
  write_json_file(path("cases.json"), cases);
  const Json report = parse_json(
      run_peer("tests/infer/grammar/validate_texts.py", {path("cases.json")}), "validate_texts.py");
  EXPECT_EQ(report["texts"], kAnswers);
  EXPECT_EQ(report["invalid"], Json::array());
}

}  // namespace
}  // namespace hone::test
