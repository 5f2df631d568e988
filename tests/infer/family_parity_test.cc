// SPDX-License-Identifier: Apache-2.0
// Random tiny models of every family against the transformers package, as it wrote them and as
// hone converts them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "hone/core/file/json_io.h"
#include "hone/model_io/family/family.h"
#include "hone/model_io/write_model.h"
#include "tests/infer/engine_fixture.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/largest_error.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

namespace fs = std::filesystem;

struct Expected {
  explicit Expected(const fs::path& folder) {
    const Json json = read_json_file(folder / "expected.json");
    prompt = json["prompt"].get<std::vector<TokenId>>();
    greedy = json["greedy"].get<std::vector<TokenId>>();
    logits.resize(fs::file_size(folder / "logits.f32") / sizeof(float));
    std::ifstream file(folder / "logits.f32", std::ios::binary);
    file.read(reinterpret_cast<char*>(logits.data()),
              static_cast<std::streamsize>(logits.size() * sizeof(float)));
  }
  std::vector<TokenId> prompt, greedy;
  std::vector<float> logits;
};

std::unique_ptr<Engine> open_exact(const fs::path& path, Index prefill_chunk = 7) {
  EngineOptions options;
  options.executor = &serial_executor();
  options.need_tokenizer = false;
  options.kv = KvDtype::Float32;
  options.activations = Activations::Float32;
  options.prefill_chunk = prefill_chunk;
  return Engine::open_or_throw(path, options);
}

std::vector<float> logits_of(Engine& engine, const std::vector<TokenId>& prompt) {
  std::vector<float> all;
  engine.score(prompt, {.on_logits = [&](Index, Index, std::span<const float> logits) {
                 all.insert(all.end(), logits.begin(), logits.end());
               }});
  return all;
}

// Largest difference of the logits that predict positions 1…, over the largest logit.
double relative_error(const std::vector<float>& got, const Expected& expected) {
  hone::test::LargestError largest;
  for (std::size_t i = 0; i < got.size(); ++i) largest.add(got[i], expected.logits[i]);
  return largest.relative();
}

// Returns the relative error of the logits.
double expect_parity(const fs::path& model, const Expected& expected) {
  const auto engine = open_exact(model);
  const auto logits = logits_of(*engine, expected.prompt);
  EXPECT_EQ(logits.size() + logits.size() / (expected.prompt.size() - 1), expected.logits.size());
  const double error = relative_error(logits, expected);
  EXPECT_LE(error, 2e-4);
  const auto greedy = test::greedy(expected.prompt, std::ssize(expected.greedy));
  EXPECT_EQ(test::run_request(*engine, greedy)->tokens, expected.greedy);
  // A cache that grows token by token holds what one that grew at once holds.
  for (const Index chunk : {1, 64})
    EXPECT_EQ(logits_of(*open_exact(model, chunk), expected.prompt), logits);
  return error;
}

model_io::ModelSource source_of(const model_io::ModelFile& file) {
  return {file.architecture(), file.tensors(), nullptr, file.generation_defaults()};
}

// The model of `from` in another format and back gives what the model gives.
void expect_conversions(const fs::path& from, const fs::path& work, const Expected& expected) {
  const model_io::OpenOptions bare{.tokenizer = {}, .need_tokenizer = false};
  const auto original = model_io::open_model_or_throw(from, bare);
  model_io::write_gguf(work / "m.gguf", source_of(*original), model_io::StoreType::F32);
  const auto gguf = model_io::open_model_or_throw(work / "m.gguf", bare);
  model_io::write_hugging_face(work / "back", source_of(*gguf));
  model_io::write_artifact(work / "artifact", source_of(*gguf));
  for (const char* name : {"m.gguf", "back", "artifact"}) {
    SCOPED_TRACE(name);
    const auto engine = open_exact(work / name);
    EXPECT_LE(relative_error(logits_of(*engine, expected.prompt), expected), 2e-4);
    EXPECT_EQ(engine->info().architecture.family, original->architecture().family);
    EXPECT_EQ(engine->info().architecture.windows, original->architecture().windows);
  }
}

TEST(FamilyParity, logits_and_greedy_tokens_are_those_of_transformers) {
  HONE_REQUIRE_PEER("transformers", "torch", "safetensors");
  const hone::test::TemporaryFolder folder;
  hone::test::run_peer("tests/infer/family_parity.py", {folder.path().string()});
  std::map<std::string, int> models;
  double worst = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    SCOPED_TRACE(entry.path().string());
    const Expected expected(entry.path());
    worst = std::max(worst, expect_parity(entry.path(), expected));
    const hone::test::TemporaryFolder work;
    expect_conversions(entry.path(), work.path(), expected);
    ++models[hone::test::open_bare(entry.path())->architecture().family];
  }
  EXPECT_EQ(std::ssize(models), std::ssize(model_io::families()));
  for (const auto& [family, count] : models) EXPECT_GE(count, 6) << family;
  std::printf("worst |logit error| / max |logit|: %.2e\n", worst);
}

}  // namespace
}  // namespace hone::infer
