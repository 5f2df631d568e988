// SPDX-License-Identifier: Apache-2.0
// What is wrong with options and inputs is told before the weights of a model are read.
#include <gmock/gmock.h>

#include <cstring>

#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

// A model that opens, but one of whose weights --weights q8 refuses: whoever reads the weights
// first ends with that.
class EarlyRefusal : public Cli {
 protected:
  EarlyRefusal() : model_(write_tiny_model()) {
    const std::string file = model_ + "/model.safetensors";
    std::string bytes = read_text_file(file);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    const Json header = parse_json(bytes.substr(8, length), "header");
    const float value = 1e30f;
    std::memcpy(bytes.data() + 8 + length + header[kTensor]["data_offsets"][0].get<std::size_t>(),
                &value, sizeof value);
    write_text_file(file, bytes);
  }
  // The command must not come as far as the weights.
  void expect_early(const Arguments& arguments, int status, const std::string& text) const {
    const std::string error =
        expect_refusal(arguments + Arguments{"--weights", "q8"}, status, text);
    EXPECT_THAT(error, Not(HasSubstr(kTensor)));
  }

  static constexpr const char* kTensor = "model.layers.0.self_attn.q_proj.weight";
  std::string model_;
};

TEST_F(EarlyRefusal, options_of_generate_come_before_the_weights) {
  const Arguments generate{"generate", model_, "-p", "a"};
  expect_refusal(generate + Arguments{"--weights", "q8"}, 3, kTensor);
  write_text_file(path("broken.json"), "{\"type\": ");
  write_text_file(path("pattern.json"), "{\"pattern\": \"(?=x)\"}");
  fs::copy(model_, path("other"), fs::copy_options::recursive);
  write_text_file(path("other/config.json"), "{}");
  struct Case {
    Arguments options;
    int status;
    const char* text;
  };
  for (const auto& [options, status, text] :
       std::vector<Case>{{{"--temp", "-1"}, 2, "--temp"},
                         {{"-n", "0"}, 2, "--max-tokens"},
                         {{"--top-p", "0"}, 2, "top_p"},
                         {{"-n", "2", "--min-tokens", "3"}, 2, "min_tokens"},
                         {{"--stop", ""}, 2, "stop"},
                         {{"--logit-bias", "48:1"}, 2, "logit_bias"},
                         {{"--logit-bias", "4:1000"}, 2, "logit_bias"},
                         {{"--top-k", "5", "--json-schema", path("broken.json")}, 3, "JSON"},
                         {{"--json-schema", path("pattern.json")}, 4, "pattern"},
                         {{"--json-schema", path("none.json")}, 3, "none.json"},
                         {{"--json-schema", "true", "--ignore-eos"}, 2, "JSON schema"},
                         {{"--ctx", "65"}, 2, "context"},
                         {{"--kv-mb", "1000000000"}, 2, "KV cache"},
                         {{"--tokenizer", path("none")}, 3, "none"},
                         {{"--draft", path("none")}, 3, "none"},
                         {{"--draft", path("other")}, 4, "other"}}) {
    expect_early(generate + options, status, text);
  }
  expect_early({"generate", model_, "-p", "", "--no-bos"}, 2, "at least one token");
  expect_early({"generate", model_, "-p", std::string(200, 'b')}, 2, "context");
  write_text_file(path("ids.json"), "[1, 48]");
  expect_early({"generate", model_, "--prompt-ids", path("ids.json")}, 2, "below 48");
  expect_early({"generate", model_, "--prompt-ids", path("none.json")}, 3, "none.json");
  expect_early({"generate", model_, "-f", path("none.txt")}, 3, "none.txt");
}

TEST_F(EarlyRefusal, options_of_many_prompts_come_before_the_weights) {
  write_text_file(path("p.jsonl"), "{\"prompt\": \"a\"}\n");
  write_text_file(path("mine"), "mine");
  const Arguments generate{"generate", model_, "--prompts", path("p.jsonl")};
  expect_refusal(generate + Arguments{"--weights", "q8"}, 3, kTensor);
  expect_early({"generate", model_, "--prompts", path("none.jsonl")}, 3, "none.jsonl");
  expect_early(generate + Arguments{"--output", path("mine")}, 2, "mine");
  expect_early(generate + Arguments{"--top-p", "0"}, 2, "top_p");
  expect_early(generate + Arguments{"--logit-bias", "48:1"}, 2, "logit_bias");
  expect_early(generate + Arguments{"-n", "2", "--min-tokens", "3"}, 2, "min_tokens");
  expect_early(generate + Arguments{"--json-schema", "{\"not\": {}}"}, 4, "not");
  write_text_file(path("p.jsonl"),
                  "{\"id\": \"a\", \"prompt\": \"a\"}\n\n{\"id\": \"b\", \"prompt\": \"a\"}\n"
                  "nonsense\n{\"id\": \"a\", \"tokens\": [1]}\n");
  const std::string same = "[p.jsonl, line 5] The id '\"a\"' is that of line 1.";
  expect_early(generate, 2, same);
  expect_early(generate + Arguments{"--output", path("out")}, 2, same);
  EXPECT_FALSE(fs::exists(path("out.partial")));
  write_text_file(path("p.jsonl"), " \n\n");
  expect_early(generate, 2, "no prompts");
  // A line without an id has its number as one.
  write_text_file(path("p.jsonl"), "{\"prompt\": \"a\"}\n{\"id\": 1, \"prompt\": \"a\"}\n");
  expect_early(generate, 2, "line 2] The id '1' is that of line 1");
  write_text_file(path("p.jsonl"), "{\"prompt\": \"a\"}\n{\"id\": \"1\", \"prompt\": \"a\"}\n");
  expect_refusal(generate + Arguments{"--weights", "q8"}, 3, kTensor);
}

TEST_F(EarlyRefusal, options_of_eval_come_before_the_weights) {
  write_text_file(path("text"), "a b c d e f g h");
  model_io::Architecture architecture = tiny_architecture();
  architecture.vocab_size = 47;
  const auto pieces = text::make_tokenizer(tiny_sentencepiece(47));
  const TinyModel other(architecture);
  write_hugging_face(path("other"), other.source(pieces.get()));
  const Arguments eval{"eval", model_, "--data", path("text")};
  expect_refusal(eval + Arguments{"--weights", "q8"}, 3, kTensor);
  expect_early({"eval", model_, "--data", path("none")}, 3, "none");
  expect_early(eval + Arguments{"--window", "65"}, 2, "window");
  expect_early(eval + Arguments{"--baseline", path("none")}, 3, "none");
  expect_early(eval + Arguments{"--baseline", path("other")}, 2, "vocabulary of 48");
  expect_early(eval + Arguments{"--tokenizer", path("none")}, 3, "none");
  expect_early({"eval", model_, "--token-ids", path("none.json")}, 3, "none.json");
  write_text_file(path("ids.json"), "[1]");
  expect_early({"eval", model_, "--token-ids", path("ids.json")}, 3, "no token to predict");
}

TEST_F(EarlyRefusal, convert_and_tokenize_look_at_their_options_first) {
  fs::create_directory(path("photos"));
  write_text_file(path("photos/cat.txt"), "cat");
  const std::string broken = path("broken.gguf");
  write_text_file(broken, "GGUF");
  expect_refusal({"convert", broken, path("photos")}, 2, "photos");
  expect_refusal({"convert", broken, path("photos/cat.txt"), "--to", "gguf"}, 2, "cat.txt");
  expect_refusal({"convert", broken, path("m.bin"), "--dtype", "q8_0"}, 2, "--dtype");
  expect_refusal({"tokenize", broken, "--decode", "-p", "1 x"}, 2, "\"x\"");
  expect_refusal({"tokenize", broken, "-f", path("none.txt")}, 3, "none.txt");
}

TEST_F(EarlyRefusal, compress_looks_at_recipe_and_data_before_it_reads_the_model) {
  write_text_file(path("recipe.toml"),
                  "version = 1\n[[pass]]\nkind = \"quantize\"\nspec = \"int4:g32\"\n"
                  "apply = [\"nothing.*\"]\n");
  const Arguments compress{"compress", model_, "-o", path("small"), "--trace", path("trace.json")};
  for (const auto& [options, status, text] : std::vector<std::tuple<Arguments, int, std::string>>{
           {{"--quantize", "int4:g32", "--data", path("none.txt")}, 3, "none.txt"},
           {{"--quantize", "int4:g33"}, 2, "g33"},
           {{"--recipe", path("none.toml")}, 3, "none.toml"},
           {{"--recipe", path("recipe.toml")}, 2, "matches no tensor"}}) {
    expect_refusal(compress + options, status, text);
    EXPECT_THAT(read_text_file(path("trace.json")), Not(HasSubstr("hash original")));
    fs::remove(path("trace.json"));
  }
}

}  // namespace
}  // namespace hone::test
