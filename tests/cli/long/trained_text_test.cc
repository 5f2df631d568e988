// SPDX-License-Identifier: Apache-2.0
// A model that hone trains until it knows a text by heart, whose next tokens are therefore certain,
// in llama.cpp's own files of k-quants: llama.cpp and hone go on with the same text. (Where two
// tokens are nearly equal, 8-bit activations decide, and those of the two programs differ.)
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

TEST_F(Cli, k_quants_of_a_trained_model_give_the_greedy_text_of_llama_cpp) {
  if (!has_libtorch()) GTEST_SKIP() << "built without LibTorch";
  HONE_REQUIRE_PEER("llama_cpp");
  HONE_REQUIRE_TEST_DATA(plays, "text/tinyshakespeare.txt");
  const std::string text = read_text_file(plays).substr(0, kTextBytes);
  write_text_file(path("text.txt"), text);
  const ProgramResult trained = run_hone(
      {"train", "lm", "--data", path("text.txt"), "--out", path("run"), "--set",
       "model.hidden_size=256", "--set", "model.intermediate_size=768", "--set", "model.heads=4",
       "--set", "model.kv_heads=2", "--set", "data.windows=stream", "--set", "trainer.steps=800"});
  ASSERT_EQ(trained.status, 0) << trained.err;
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

}  // namespace
}  // namespace hone::test
