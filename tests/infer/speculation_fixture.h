// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/philox.h"
#include "tests/infer/engine_fixture.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

namespace hone::infer::test {

using namespace hone::test;

// Drafts that replay known texts, each token wrong with a probability that depends on its place
// alone. A text is known by its beginning.
class ReplayDrafts {
 public:
  explicit ReplayDrafts(double right = 1) : right_(right) {}
  void add(std::span<const TokenId> prompt, std::span<const TokenId> output) {
    std::vector<TokenId> text(prompt.begin(), prompt.end());
    text.insert(text.end(), output.begin(), output.end());
    texts_.push_back(std::move(text));
  }
  std::vector<TokenId> operator()(std::span<const TokenId> text, Index count) const {
    for (const std::vector<TokenId>& known : texts_) {
      if (known.size() < text.size() || !std::equal(text.begin(), text.end(), known.begin())) {
        continue;
      }
      std::vector<TokenId> drafts;
      for (std::size_t at = text.size(); at < known.size() && std::ssize(drafts) < count; ++at) {
        const bool is_right = PhiloxStream(9, at).uniform_double() < right_;
        drafts.push_back(is_right ? known[at] : known[at] ^ 1);
      }
      return drafts;
    }
    return {};
  }

 private:
  double right_;
  std::vector<std::vector<TokenId>> texts_;
};

inline Request with_depth(Request request, std::optional<Index> depth,
                          SpecRule rule = SpecRule::Coupled) {
  request.spec = {.depth = depth, .rule = rule};
  return request;
}

// What a reader of both requests could tell apart.
inline void expect_equal(const CollectSink& got, const CollectSink& want, const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_EQ(got.last().finished, want.last().finished) << got.last().error;
  ASSERT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.text, want.text);
  ASSERT_EQ(got.events.size(), want.events.size());
  for (std::size_t i = 0; i < got.events.size(); ++i) {
    ASSERT_EQ(got.events[i].text, want.events[i].text) << "event " << i;
    ASSERT_EQ(got.events[i].logprob, want.events[i].logprob) << "event " << i;
    ASSERT_EQ(got.events[i].top.size(), want.events[i].top.size()) << "event " << i;
  }
  EXPECT_EQ(got.last().kv_blocks, want.last().kv_blocks);
  EXPECT_EQ(got.last().kv_bytes, want.last().kv_bytes);
}

// Two random models on disk, and engines on the first.
class SpeculationModels : public testing::Test {
 protected:
  std::filesystem::path write_model(const std::string& name, model_io::Architecture architecture,
                                    std::uint64_t seed) const {
    const auto path = folder_.path() / name;
    const hone::test::TinyModel model(architecture, seed);
    model_io::write_hugging_face(path, model.source());
    return path;
  }
  static std::unique_ptr<Engine> open(const std::filesystem::path& model,
                                      EngineOptions options = {}) {
    if (options.executor == nullptr) options.executor = &serial_executor();
    options.need_tokenizer = false;
    return Engine::open_or_throw(model, options);
  }
  static std::vector<TokenId> greedy_tokens(const std::filesystem::path& model,
                                            const std::vector<TokenId>& prompt, Index tokens) {
    return run_request(*open(model), greedy(prompt, tokens))->tokens;
  }

  hone::test::TemporaryFolder folder_;
};

}  // namespace hone::infer::test
