// SPDX-License-Identifier: Apache-2.0
// The trained model: known text through the program, in every format; documented JSON fields.
#include <gmock/gmock.h>

#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

class Stories : public Cli {
 protected:
  void SetUp() override {
    HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
    HONE_REQUIRE_TEST_DATA(tokenizer, "lm/tok512.bin");
    HONE_REQUIRE_TEST_DATA(expected, "lm/stories260K.expected.json");
    model_ = model.string();
    tokenizer_ = tokenizer.string();
    cases_ = read_json_file(expected)["cases"];
  }
  Arguments with_tokenizer(const char* verb) const {
    return {verb, model_, "--tokenizer", tokenizer_};
  }
  // Greedy continuation of all known prompts.
  void expect_known_text(const Arguments& generate) const {
    ASSERT_EQ(cases_.size(), 3u);
    for (const Json& known : cases_) {
      const Json got =
          json_of(generate + Arguments{"--temp", "0", "-n", "100", "--ignore-eos", "--act", "f32",
                                       "-p", known["prompt"].get<std::string>()});
      EXPECT_EQ(got["tokens"], known["generated_ids"]) << generate[1];
      EXPECT_EQ(got["text"], known["text"]) << generate[1];
    }
  }
  std::string model_, tokenizer_;
  Json cases_;
};

void expect_fields(const Json& document, const std::vector<const char*>& fields) {
  for (const char* field : fields) EXPECT_TRUE(document.contains(field)) << field;
}

TEST_F(Stories, known_text_in_every_format) {
  expect_known_text(with_tokenizer("generate"));
  const std::string hf = path("hf"), gguf = path("m.gguf"), back = path("back.bin");
  json_of(with_tokenizer("convert") + Arguments{hf, "--dtype", "f32"});
  json_of({"convert", hf, gguf, "--dtype", "f32"});
  json_of({"convert", gguf, back});
  for (const std::string& model : {hf, gguf, back}) expect_known_text({"generate", model});
}

TEST_F(Stories, quantized_files_keep_telling) {
  for (const char* type : {"q8_0", "q4_0"}) {
    const std::string file = path(type) + ".gguf";
    json_of(with_tokenizer("convert") + Arguments{file, "--dtype", type});
    const Json got =
        json_of({"generate", file, "-p", "Once upon a time", "--temp", "0", "-n", "40"});
    EXPECT_EQ(got["tokens"].size(), 40u) << type;
    EXPECT_TRUE(got["text"].get<std::string>().starts_with(", there was a little")) << got["text"];
  }
}

TEST_F(Stories, output_follows_a_json_schema_of_a_file_or_of_the_command_line) {
  const std::string schema =
      R"({"type":"object","properties":{"n":{"type":"integer","minimum":10,"maximum":99}},)"
      R"("required":["n"],"additionalProperties":false})";
  write_text_file(path("schema.json"), "\n" + schema);
  for (const std::string& option : {schema, path("schema.json")}) {
    const Json got = json_of(with_tokenizer("generate") +
                             Arguments{"-p", "Tim is", "--json-schema", option, "--seed", "4"});
    EXPECT_EQ(got["finish_reason"], "stop");
    const Json value = parse_json(got["text"].get<std::string>(), "output");
    EXPECT_TRUE(value.size() == 1 && value["n"] >= 10 && value["n"] <= 99) << got["text"];
  }
  const auto refuse = [&](const std::string& option, int status, const Arguments& more = {}) {
    expect_refusal(
        with_tokenizer("generate") + Arguments{"-p", "a", "--json-schema", option} + more, status);
  };
  refuse(R"({"not":{}})", 4);
  refuse(R"({"type":1})", 4);
  refuse(R"({"minLength":"a"})", 2);
  refuse("false", 2);
  refuse("{", 3);
  refuse(path("absent.json"), 3);
  refuse(schema, 2, {"--ignore-eos"});
  refuse(schema, 2, {"--ignore-eos"});
}

TEST_F(Stories, threads_and_instruction_sets_leave_the_text_alone) {
  for (const char* threads : {"1", "2", "7"})
    expect_known_text(with_tokenizer("generate") + Arguments{"--threads", threads});
  const Json isas = json_of({"doctor"})["isa"];
  ASSERT_GE(isas.size(), 1u);
  for (const Json& isa : isas)
    expect_known_text(with_tokenizer("generate") +
                      Arguments{"--force-isa", isa.get<std::string>()});
}

TEST_F(Stories, odd_prompts) {
  const std::string empty = path("empty.txt"), bytes = path("bytes.bin");
  write_text_file(empty, "");
  write_text_file(bytes, std::string("\xff\xfe\x00\xc3", 4));
  const Arguments greedy = with_tokenizer("generate") + Arguments{"--temp", "0", "-n", "5"};
  const Json from_option = json_of(greedy + Arguments{"-p", ""});
  EXPECT_EQ(json_of(greedy + Arguments{"-f", empty})["tokens"], from_option["tokens"]);
  EXPECT_EQ(json_of(greedy + Arguments{"-f", bytes})["tokens"].size(), 5u);
  EXPECT_EQ(json_of(greedy + Arguments{"-p", "\xff\xfe"})["tokens"].size(), 5u);
  // A wish beyond the context ends with the context.
  const Json all =
      json_of(with_tokenizer("generate") +
              Arguments{"--temp", "0", "--ignore-eos", "-n", "1000000000000", "-p", "One"});
  EXPECT_EQ(all["finish_reason"], "context");
  EXPECT_EQ(all["tokens"].size() + all["timings"]["prompt_tokens"].get<std::size_t>(), 512u);
}

TEST_F(Stories, json_documents_have_the_documented_fields) {
  const Json inspect = json_of({"inspect", model_});
  expect_fields(inspect, {"format", "architecture", "tensors", "parameters", "bytes"});
  EXPECT_EQ(inspect["parameters"], 260'032);
  const Json convert = json_of(with_tokenizer("convert") + Arguments{path("m.gguf")});
  expect_fields(convert, {"tensors", "bytes"});
  const Json tokens = json_of({"tokenize", tokenizer_, "-p", "Once upon a time"});
  expect_fields(tokens, {"tokens", "pieces"});
  EXPECT_EQ(tokens["tokens"], cases_[0]["prompt_ids"]);
  EXPECT_EQ(tokens["pieces"].size(), tokens["tokens"].size());
  const Json generate = json_of(with_tokenizer("generate") + Arguments{"-p", "One", "-n", "3"});
  expect_fields(generate, {"text", "tokens", "finish_reason", "timings"});
  expect_fields(generate["timings"],
                {"prompt_tokens", "prompt_per_s", "gen_tokens", "gen_per_s", "ttft_ms"});
  write_text_file(path("text.txt"), cases_[0]["text"].get<std::string>());
  const Arguments eval = with_tokenizer("eval") + Arguments{"--data", path("text.txt")};
  const std::vector<const char*> quality{"tokens", "nll", "perplexity", "bits_per_byte"};
  expect_fields(json_of(eval), quality);
  const Json compared = json_of(eval + Arguments{"--baseline", path("m.gguf")});
  expect_fields(compared, quality);
  expect_fields(compared, {"kl_mean", "kl_p99", "top1_agreement", "ppl_ratio", "ppl_ratio_ci"});
  expect_fields(json_of({"doctor"}), {"cpu", "isa", "cores", "quota", "memory_gb_per_s",
                                      "peak_gflops", "torch", "cuda"});
}

}  // namespace
}  // namespace hone::test
