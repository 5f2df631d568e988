// SPDX-License-Identifier: Apache-2.0
// How prompts may be given, and what answers say about their end.
#include <gmock/gmock.h>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class PromptForms : public Cli {
 protected:
  PromptForms() : model_(write_tiny_model()) {}
  Json generate(const Arguments& more) const {
    return json_of(Arguments{"generate", model_, "-n", "6", "--temp", "0", "--ignore-eos"} + more);
  }
  std::vector<Json> answers(const std::string& prompts, const Arguments& more) const {
    write_text_file(path("p.jsonl"), prompts);
    const ProgramResult result =
        run_hone(Arguments{"generate", model_, "--prompts", path("p.jsonl"), "--temp", "0"} + more);
    EXPECT_EQ(result.status, 0) << result.err;
    std::vector<Json> all;
    for (std::size_t at = 0; at < result.out.size(); at = result.out.find('\n', at) + 1) {
      all.push_back(parse_json(result.out.substr(at, result.out.find('\n', at) - at), "answer"));
    }
    return all;
  }
  std::string model_;
};

TEST_F(PromptForms, ids_are_taken_as_tokenize_prints_them) {
  const ProgramResult printed = run_hone({"tokenize", model_, "-p", "abc", "--json"});
  write_text_file(path("document.json"), printed.out);
  write_text_file(path("ids.json"), parse_json(printed.out, "tokenize")["tokens"].dump());
  const Json wanted = generate({"-p", "abc"})["tokens"];
  EXPECT_EQ(generate({"--prompt-ids", path("ids.json")})["tokens"], wanted);
  EXPECT_EQ(generate({"--prompt-ids", path("document.json")})["tokens"], wanted);
  write_text_file(path("long.json"), "{\"tokens\": [1, 5, 6, 7, 8, 9]}");
  EXPECT_EQ(json_of({"eval", model_, "--token-ids", path("long.json")})["tokens"], 5);
}

TEST_F(PromptForms, special_tokens_are_parsed_where_that_is_asked_for) {
  const std::string text = "<s>b</s>b";
  const auto tokens = [&](const Arguments& more) {
    return json_of(Arguments{"tokenize", model_, "-p", text} + more)["tokens"];
  };
  const Json special = tokens({"--parse-special", "--no-bos"}), plain = tokens({"--no-bos"});
  ASSERT_NE(special, plain);
  ASSERT_EQ(special[0], 1);
  const auto prompt_tokens = [](const Json& answer) { return answer["timings"]["prompt_tokens"]; };
  write_text_file(path("prompt.txt"), text);
  write_text_file(path("ids.json"), special.dump());
  const Json wanted = generate({"--prompt-ids", path("ids.json")});
  for (const Arguments& prompt : {Arguments{"-p", text}, Arguments{"-f", path("prompt.txt")}}) {
    const Json parsed = generate(prompt + Arguments{"--parse-special", "--no-bos"});
    EXPECT_EQ(parsed["tokens"], wanted["tokens"]);
    EXPECT_EQ(prompt_tokens(parsed), special.size());
    EXPECT_EQ(prompt_tokens(generate(prompt + Arguments{"--no-bos"})), plain.size());
  }
  const std::string line = Json{{"prompt", text}}.dump() + "\n";
  EXPECT_EQ(prompt_tokens(answers(line, {"--parse-special", "--no-bos"})[0]), special.size());
  EXPECT_EQ(prompt_tokens(answers(line, {"--no-bos"})[0]), plain.size());
}

TEST_F(PromptForms, a_second_bos_is_told) {
  const auto notes = [&](const Arguments& more) {
    return run_hone(Arguments{"generate", model_, "-p", "<s>b", "-n", "1"} + more).err;
  };
  EXPECT_THAT(notes({"--parse-special"}), AllOf(HasSubstr("BOS twice"), HasSubstr("--no-bos")));
  EXPECT_THAT(notes({"--parse-special", "--no-bos"}), Not(HasSubstr("BOS")));
  EXPECT_THAT(notes({}), Not(HasSubstr("BOS")));
}

TEST_F(PromptForms, the_end_of_the_context_is_told_from_that_of_the_tokens) {
  const Arguments all{"--ignore-eos", "-n"};  // the context has 64 tokens
  const auto generated = [&](const char* most) {
    return json_of(Arguments{"generate", model_, "-p", "abc"} + all + Arguments{most});
  };
  EXPECT_EQ(generated("6")["finish_reason"], "length");
  EXPECT_EQ(generated("1000")["finish_reason"], "context");
  const std::vector<Json> lines = answers(
      "{\"prompt\": \"b\", \"max_tokens\": 3}\n{\"prompt\": \"b\"}\n", all + Arguments{"1000"});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["finish_reason"], "length");
  EXPECT_EQ(lines[1]["finish_reason"], "context");
  const std::string notes =
      run_hone(Arguments{"generate", model_, "-p", "abc"} + all + Arguments{"1000"}).err;
  EXPECT_THAT(notes, HasSubstr("context"));
}

TEST_F(PromptForms, keywords_of_a_schema_are_ignored_on_request_and_named) {
  const std::string schema = R"({"type":"null","uniqueItems":true,"format":"iri"})";
  const Arguments generate{"generate", model_, "-p", "a", "--temp", "0", "--json-schema", schema};
  const std::string error = expect_refusal(generate, 4, "\"uniqueItems\"");
  EXPECT_THAT(error, HasSubstr("--schema-ignore-unsupported"));
  const ProgramResult result = run_hone(generate + Arguments{"--schema-ignore-unsupported"});
  EXPECT_THAT(result.err, HasSubstr("/uniqueItems, /format"));
  const Json document = json_of(generate + Arguments{"--schema-ignore-unsupported"});
  EXPECT_EQ(document["schema_ignored"], (Json{"/uniqueItems", "/format"}));
  EXPECT_EQ(document["text"], "null");
  const std::string line =
      Json{{"prompt", "a"}, {"json_schema", parse_json(schema, "schema")}}.dump() + "\n";
  EXPECT_EQ(answers(line, {"--schema-ignore-unsupported"})[0]["schema_ignored"],
            (Json{"/uniqueItems", "/format"}));
}

}  // namespace
}  // namespace hone::test
