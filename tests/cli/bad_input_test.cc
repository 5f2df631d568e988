// SPDX-License-Identifier: Apache-2.0
// Inputs that exist and are of no use: exit 3 and a sentence that says where.
#include <gmock/gmock.h>
#include <unistd.h>

#include <limits>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

using BadInput = Cli;

TEST_F(BadInput, folders_links_and_files_without_permission_end_with_3) {
  const std::string model = write_tiny_model();
  fs::create_directory(path("folder"));
  fs::create_directory(path("folder.gguf"));
  fs::create_symlink(path("loop"), path("loop"));
  fs::create_symlink(path("loop.safetensors"), path("loop.safetensors"));
  write_text_file(path("secret"), "text");
  fs::permissions(path("secret"), fs::perms::none);
  std::vector<std::string> inputs{path("folder"), path("folder.gguf"), path("loop")};
  if (::geteuid() != 0) inputs.push_back(path("secret"));  // root may read everything
  for (const std::string& input : inputs) {
    expect_refusal({"inspect", input}, 3);
    expect_refusal({"generate", input, "-p", "a"}, 3);
    expect_refusal({"convert", input, path("out.gguf")}, 3);
    expect_refusal({"generate", model, "-f", input}, 3);
    expect_refusal({"generate", model, "--prompt-ids", input}, 3);
    expect_refusal({"eval", model, "--data", input}, 3);
    expect_refusal({"eval", model, "--token-ids", input}, 3);
    expect_refusal({"tokenize", model, "-f", input}, 3);
    expect_refusal({"tokenize", input, "-p", "a"}, 3);
  }
  expect_refusal({"inspect", path("loop.safetensors")}, 3);
}

TEST_F(BadInput, options_that_would_have_no_effect_are_refused) {
  const std::string model = write_tiny_model();
  const Arguments generate{"generate", model, "-p", "a"};
  const std::vector<Arguments> without_effect{
      {"--spec-k", "4"},
      {"--spec-rule", "exact"},
      {"--max-sequences", "2"},
      {"--logprobs", "2"},
      {"--json-schema", ""},
      {"--draft", ""},
      {"--schema-ignore-unsupported"},
      {"--tokenizer", ""},
      {"--temp", "5.5"},
      {"--temp", "1e39"},
      {"--top-p", "-0.1"},
      {"--logprobs", "21"},
      {"-n", "0"},
      {"--json-schema", "{\"type\": \"boolean\"}", "--min-tokens", "3"}};
  for (const Arguments& options : without_effect) expect_refusal(generate + options, 2);
  write_text_file(path("prompts.jsonl"), "{\"prompt\": \"a\"}\n");
  expect_refusal({"generate", model, "--prompts", path("prompts.jsonl"), "--output=", "--resume"},
                 2);
  EXPECT_FALSE(fs::exists("--resume.partial"));
}

TEST_F(BadInput, token_ids_are_whole_numbers) {
  const std::string model = write_tiny_model(), file = path("ids.json");
  for (const auto& [ids, got] : std::vector<std::pair<const char*, const char*>>{
           {"[1.5]", "got 1.5"},
           {"[1, -2]", "got -2"},
           {"[true]", "got true"},
           {"[4294967296]", "got 4294967296"},
           {"{\"a\": []}",
            "a JSON array of token ids, or an object that has it as \"tokens\", got "
            "object"},
           {"{\"tokens\": {}}", "got object"},
           {"{\"tokens\": [1, \"a\"]}", "got \"a\""}}) {
    write_text_file(file, ids);
    expect_refusal({"generate", model, "--prompt-ids", file}, 3, got);
    expect_refusal({"eval", model, "--token-ids", file}, 3, got);
  }
}

TEST_F(BadInput, defaults_of_a_model_that_are_out_of_range_are_named_with_their_file) {
  const std::string model = write_tiny_model();
  for (const char* text : {"{\"temperature\": 9}", "{\"top_p\": 0}", "{\"top_k\": -1}",
                           "{\"repetition_penalty\": 1e30}"}) {
    write_text_file(model + "/generation_config.json", text);
    const Arguments generate{"generate", model, "-p", "a", "-n", "2"};
    const Json value = parse_json(text, "text");
    expect_refusal(generate, 3, concat("[generation_config.json: ", value.begin().key(), "]"));
    EXPECT_EQ(run_hone(generate + Arguments{"--no-model-defaults"}).status, 0) << text;
  }
}

TEST_F(BadInput, eval_refuses_text_that_is_no_utf8_or_too_short) {
  const std::string model = write_tiny_model(), text = path("text.txt");
  const auto eval = [&](const std::string& content) {
    write_text_file(text, content);
    return expect_refusal({"eval", model, "--data", text}, 3);
  };
  EXPECT_THAT(eval("a b c \xff d"), AllOf(HasSubstr("text.txt"), HasSubstr("offset 6")));
  EXPECT_THAT(eval(""), HasSubstr("text.txt"));
  write_text_file(path("ids.json"), "[]");
  expect_refusal({"eval", model, "--token-ids", path("ids.json")}, 3);
  write_text_file(text, "a b c d");
  for (const char* window : {"0", "-1", "1", "65", "many"})
    expect_refusal({"eval", model, "--data", text, "--window", window}, 2, "window");
  expect_refusal({"eval", model, "--data", text, "--max-tokens", "0"}, 2, "--max-tokens: expected");
  EXPECT_EQ(json_of({"eval", model, "--data", text, "--window", "2"})["window"], 2);
}

TEST_F(BadInput, a_weight_that_is_not_finite_is_named_when_it_spoils_the_result) {
  const std::string model = write_tiny_model(), file = model + "/model.safetensors";
  const std::string good = read_text_file(file);
  write_text_file(path("text.txt"), "a b c d");
  std::uint64_t length = 0;
  std::memcpy(&length, good.data(), sizeof length);
  const Json header = parse_json(good.substr(8, length), "header");
  for (const char* tensor :
       {"model.layers.1.input_layernorm.weight", "model.layers.0.mlp.down_proj.weight"}) {
    for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      std::string bytes = good;
      const auto begin = header[tensor]["data_offsets"][0].get<std::size_t>();
      std::memcpy(bytes.data() + 8 + length + begin, &value, sizeof value);
      write_text_file(file, bytes);
      const std::vector<Arguments> commands{
          {"generate", model, "-p", "a", "-n", "3"},
          {"generate", model, "-p", "a", "-n", "3", "--weights", "q8"},
          {"eval", model, "--data", path("text.txt")},
          {"compress", model, "-o", path("small"), "--quantize", "int8:row"}};
      for (const Arguments& command : commands) {
        if (command[0] == "compress" && !has_libtorch()) continue;
        const ProgramResult result = run_hone(command);
        EXPECT_EQ(result.status, 3) << tensor << result.err;
        EXPECT_THAT(result.err, AllOf(HasSubstr(tensor), HasSubstr(model + "]")));
      }
    }
  }
  EXPECT_FALSE(fs::exists(path("small")));
}

TEST_F(BadInput, bytes_after_the_last_tensor_of_a_gguf_are_not_read_but_told) {
  const std::string model = write_tiny_model(), gguf = path("m.gguf");
  ASSERT_EQ(run_hone({"convert", model, gguf}).status, 0);
  const Arguments generate{"generate", gguf, "-p", "a", "-n", "4", "--temp", "0"};
  const ProgramResult clean = run_hone(generate);
  EXPECT_EQ(clean.err.find("after the last tensor"), std::string::npos) << clean.err;
  write_text_file(gguf, read_text_file(gguf) + std::string(100, 'x'));
  const ProgramResult longer = run_hone(generate);
  EXPECT_EQ(longer.status, 0);
  EXPECT_EQ(longer.out, clean.out);
  EXPECT_THAT(longer.err, HasSubstr("bytes after the last tensor are ignored"));
}

TEST_F(BadInput, numbers_out_of_range_get_one_short_sentence) {
  const std::string model = write_tiny_model();
  const std::vector<Arguments> cases{
      {"doctor", "--threads", "-1"},    {"doctor", "--threads", "1e300"},
      {"doctor", "--seed", "-1"},       {"generate", model, "-p", "a", "--seed", "-1"},
      {"bench", "gemm", "--rows", "0"}, {"bench", "gemm", "--repeat", "-5"}};
  for (const Arguments& arguments : cases) {
    const std::string error = expect_refusal(arguments, 2);
    EXPECT_LT(error.size(), 120u) << error;
    EXPECT_THAT(error, AllOf(HasSubstr("expected"), HasSubstr("got"))) << error;
  }
}

TEST_F(BadInput, a_misspelt_option_is_named_with_the_nearest_one) {
  const std::string model = write_tiny_model();
  const auto error = [](const Arguments& arguments) { return expect_refusal(arguments, 2); };
  const Arguments generate{"generate", model, "-p", "a"};
  EXPECT_THAT(error(generate + Arguments{"--tmep", "0"}),
              AllOf(HasSubstr("[hone generate]"), HasSubstr("'--tmep'"), HasSubstr("'--temp'")));
  EXPECT_THAT(error(generate + Arguments{"--temperature=0.5"}),
              AllOf(HasSubstr("'--temperature'"), HasSubstr("'--temp'")));
  EXPECT_THAT(error(generate + Arguments{"-seed", "3"}), HasSubstr("'--seed'"));
  // An option of a group, without which the command also lacks a prompt.
  EXPECT_THAT(error({"generate", model, "--promt", "a"}), HasSubstr("Did you mean '--prompt'?"));
  EXPECT_THAT(error({"eval", model, "--dta", "x"}), HasSubstr("'--data'"));
  EXPECT_THAT(error({"bench", "gemm", "--rosw", "3"}),
              AllOf(HasSubstr("[hone bench gemm]"), HasSubstr("'--rows'")));
  EXPECT_THAT(error(generate + Arguments{"--bogus"}),
              AllOf(HasSubstr("'--bogus'"), HasSubstr("Try hone generate --help")));
  EXPECT_THAT(error(generate + Arguments{"--temp", "9", "--sed", "1"}), HasSubstr("'--s"));
  // What is no option.
  EXPECT_THAT(error(generate + Arguments{"more"}), HasSubstr("more"));
  EXPECT_EQ(run_hone({"generate", model, "-p", "--prompt", "-n", "1"}).status, 0);
}

TEST_F(BadInput, a_misspelt_command_is_named_with_the_nearest_one) {
  const auto error = [](const Arguments& arguments) { return expect_refusal(arguments, 2); };
  EXPECT_THAT(error({"tran"}), AllOf(HasSubstr("'tran'"), HasSubstr("'train'")));
  EXPECT_THAT(error({"tran", "lm", "--out", "x"}), HasSubstr("'train'"));
  EXPECT_THAT(error({"generat", "-p", "a"}), HasSubstr("'generate'"));
  EXPECT_THAT(error({"bench", "gem"}), AllOf(HasSubstr("'gem'"), HasSubstr("'gemm'")));
  EXPECT_THAT(error({"bogus"}), AllOf(HasSubstr("'bogus'"), HasSubstr("inspect")));
}

}  // namespace
}  // namespace hone::test
