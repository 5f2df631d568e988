// SPDX-License-Identifier: Apache-2.0
// Models that hone trains, in llama.cpp.
#include <algorithm>
#include <string>
#include <vector>

#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"
#include "tests/support/peer.h"

namespace hone::test {
namespace {

constexpr std::size_t kPrompts = 10, kTextBytes = 12'000;
constexpr const char* kTokens = "80";

// Every 19th line of more than 20 characters.
std::vector<std::string> some_lines(const std::string& text) {
  std::vector<std::string> out;
  std::size_t seen = 0;
  for (std::size_t begin = 0, end = 0; out.size() < kPrompts && end < text.size();
       begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    if (end - begin > 20 && seen++ % 19 == 5) out.push_back(text.substr(begin, end - begin));
  }
  return out;
}

// Trains a model whose rows are multiples of 256 long, as k-quants need them.
void train_wide(const Arguments& arguments) {
  const ProgramResult trained =
      run_hone(Arguments{"train", "lm", "--set", "model.hidden_size=256", "--set",
                         "model.intermediate_size=768", "--set", "model.heads=4", "--set",
                         "model.kv_heads=2", "--set", "data.windows=stream"} +
               arguments);
  ASSERT_EQ(trained.status, 0) << trained.err;
}

// A model that knows a text by heart, whose next tokens are therefore certain, in llama.cpp's own
// files of k-quants: llama.cpp and hone go on with the same text. (Where two tokens are nearly
// equal, 8-bit activations decide, and those of the two programs differ.)
TEST_F(Cli, k_quants_of_a_trained_model_give_the_greedy_text_of_llama_cpp) {
  if (!has_libtorch()) GTEST_SKIP() << "built without LibTorch";
  HONE_REQUIRE_PEER("llama_cpp");
  HONE_REQUIRE_TEST_DATA(plays, "text/tinyshakespeare.txt");
  const std::string text = read_text_file(plays).substr(0, kTextBytes);
  write_text_file(path("text.txt"), text);
  train_wide({"--data", path("text.txt"), "--out", path("run"), "--set", "trainer.steps=800"});
  const std::string plain = path("f16.gguf");
  ASSERT_EQ(run_hone({"convert", path("run/model"), plain, "--dtype", "f16"}).status, 0);
  const std::vector<std::string> prompts = some_lines(text);
  ASSERT_EQ(prompts.size(), kPrompts);
  for (const char* type : {"Q4_K_M", "Q6_K"}) {
    const std::string file = path(type) + ".gguf";
    run_peer("tests/support/llama_cpp_quantize.py", {plain, file, type});
    const Json rows = parse_json(
        run_peer("tests/support/llama_cpp_greedy.py", {file, Json(prompts).dump(), kTokens}),
        "llama.cpp");
    for (std::size_t i = 0; i < kPrompts; ++i) {
      const Json answer = json_of({"generate", file, "--prompt", prompts[i], "--max-tokens",
                                   kTokens, "--temp", "0", "--ignore-eos"});
      EXPECT_EQ(answer.at("tokens"), rows.at(i).at("ids")) << type << ": " << prompts[i];
    }
  }
}

// Every GGUF type that hone writes, and models that lost parts, are read alike: on a text that the
// model does not know, llama.cpp measures the same perplexity within 1 %.
TEST_F(Cli, every_gguf_type_has_the_perplexity_that_llama_cpp_measures) {
  if (!has_libtorch()) GTEST_SKIP() << "built without LibTorch";
  HONE_REQUIRE_PEER("llama_cpp", "numpy");
  HONE_REQUIRE_TEST_DATA(plays, "text/tinyshakespeare.txt");
  const std::string text = read_text_file(plays);
  write_text_file(path("text.txt"), text.substr(0, 10 * kTextBytes));
  write_text_file(path("other.txt"), text.substr(20 * kTextBytes, kTextBytes / 2));
  train_wide({"--data", path("text.txt"), "--out", path("run"), "--set", "trainer.steps=150"});
  const std::string model = path("run/model");
  std::vector<std::string> files;
  const auto make = [&](const std::string& name, const Arguments& arguments) {
    files.push_back(path(name) + ".gguf");
    const ProgramResult made = run_hone(arguments + Arguments{"-q"});
    ASSERT_EQ(made.status, 0) << name << ": " << made.err;
  };
  for (const char* type : {"f32", "f16", "bf16"})
    make(type, {"convert", model, path(type) + ".gguf", "--dtype", type});
  const Arguments card{"--data",         path("other.txt"), "--calib",
                       path("text.txt"), "--calib-tokens",  "2048"};
  const auto compress = [&](const std::string& name, const Arguments& how) {
    make(name, Arguments{"compress", model, "-o", path(name) + ".gguf"} + card + how);
  };
  for (const char* type :
       {"q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "iq4_nl", "q3_k"})
    compress(type, {"--quantize", type});
  compress("gptq", {"--quantize", "q4_k:gptq"});
  compress("size", {"--size", "4MB"});
  compress("pruned", {"--prune", "ffn:0.25", "heads:0.5", "layers:0.25", "--quantize", "q8_0"});
  const Json ids =
      json_of({"tokenize", model, "--file", path("other.txt"), "--no-bos"}).at("tokens");
  write_text_file(path("ids.json"), ids.dump());
  constexpr const char* kWindow = "128";
  const Json rows = parse_json(
      run_peer("tests/support/llama_cpp_perplexity.py", {Json(files).dump(), ids.dump(), kWindow}),
      "llama.cpp");
  ASSERT_EQ(rows.size(), files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    const Json ours =
        json_of({"eval", files[i], "--token-ids", path("ids.json"), "--window", kWindow});
    EXPECT_EQ(ours.at("tokens"), rows[i].at("tokens")) << files[i];
    EXPECT_NEAR(ours.at("perplexity").get<double>() / rows[i].at("perplexity").get<double>(), 1,
                0.01)
        << files[i];
  }
}

}  // namespace
}  // namespace hone::test
