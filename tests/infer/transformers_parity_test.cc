// SPDX-License-Identifier: Apache-2.0
// Twenty random tiny Llama models against the transformers package: kv heads 1, 2 and 8 of 8, tied
// and untied, head_dim apart from hidden/heads, default and llama3 RoPE, biases.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "hone/core/file/json_io.h"
#include "tests/infer/engine_fixture.h"
#include "tests/support/largest_error.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

std::vector<float> read_floats(const std::filesystem::path& path) {
  std::vector<float> values(std::filesystem::file_size(path) / sizeof(float));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

// Largest difference of the logits that predict positions 1…, over the largest logit.
double relative_error(Engine& engine, const std::vector<TokenId>& prompt,
                      const std::vector<float>& expected) {
  const Index vocab = engine.info().architecture.vocab_size;
  hone::test::LargestError largest;
  engine.score(prompt, {.on_logits = [&](Index first, Index, std::span<const float> logits) {
                 for (std::size_t i = 0; i < logits.size(); ++i) {
                   largest.add(logits[i],
                               expected[static_cast<std::size_t>((first - 1) * vocab) + i]);
                 }
               }});
  EXPECT_EQ(largest.adds, (prompt.size() - 1) * static_cast<std::size_t>(vocab));
  return largest.relative();
}

TEST(TransformersParity, logits_and_greedy_tokens_of_twenty_random_models) {
  HONE_REQUIRE_PEER("transformers", "torch");
  const hone::test::TemporaryFolder folder;
  hone::test::run_peer("tests/infer/transformers_parity.py", {folder.path().string()});
  double worst = 0;
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const Json expected = read_json_file(entry.path() / "expected.json");
    const auto prompt = expected["prompt"].get<std::vector<TokenId>>();
    EngineOptions options;
    options.executor = &serial_executor();
    options.need_tokenizer = false;
    options.kv = KvDtype::Float32;
    options.activations = Activations::Float32;
    options.prefill_chunk = 7;
    const auto engine = Engine::open_or_throw(entry.path(), options);
    const double error = relative_error(*engine, prompt, read_floats(entry.path() / "logits.f32"));
    worst = std::max(worst, error);
    EXPECT_LE(error, 2e-4) << entry.path();
    const auto greedy = expected["greedy"].get<std::vector<TokenId>>();
    const auto got =
        test::run_request(*engine, test::greedy(prompt, static_cast<Index>(greedy.size())));
    EXPECT_EQ(got->tokens, greedy) << entry.path() << " least margin " << expected["least_margin"];
    ++models;
  }
  EXPECT_EQ(models, 20);
  RecordProperty("worst_relative_error", std::to_string(worst));
  std::printf("worst |logit error| / max |logit| over %d models: %.2e\n", models, worst);
}

}  // namespace
}  // namespace hone::infer
