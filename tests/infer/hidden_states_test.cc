// SPDX-License-Identifier: Apache-2.0
// Texts that are read first and whose logits are computed later.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "hone/core/error.h"
#include "tests/infer/engine_fixture.h"
#include "tests/model_io/tiny_model.h"

namespace hone::infer {
namespace {

class HiddenStatesTest : public testing::Test {
 protected:
  HiddenStatesTest() {
    model_io::Architecture a = test::tiny_architecture();
    a.context = 256;
    layers_ = a.layers;
    write_hugging_face(folder_.path() / "hf", test::TinyModel(a).source());
  }
  std::unique_ptr<Engine> open(EngineOptions options) const {
    options.executor = &serial_executor();
    options.need_tokenizer = false;
    return Engine::open_or_throw(folder_.path() / "hf", options);
  }
  static std::vector<TokenId> text(Index length, Index step) {
    std::vector<TokenId> tokens;
    for (Index i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(i * step % 30));
    return tokens;
  }

  test::TemporaryFolder folder_;
  Index layers_ = 0;
};

TEST_F(HiddenStatesTest, logits_of_any_rows_are_those_of_a_score) {
  const auto engine = open({.prefill_chunk = 16});
  const auto tokens = text(100, 7), others = text(60, 11);
  std::vector<float> wanted;
  Index next = 1;
  const ScoreResult score = engine->score(
      tokens, {.on_logits = [&](Index first, Index rows, std::span<const float> logits) {
        EXPECT_EQ(first, next);
        next += rows;
        wanted.insert(wanted.end(), logits.begin(), logits.end());
      }});
  EXPECT_EQ(next, 100);
  const HiddenStates states = engine->read(tokens);
  engine->read(others);  // changes nothing of the first
  ASSERT_EQ(states.rows, 99);
  const std::size_t vocab = wanted.size() / 99;
  for (const Index first : {98, 0, 40}) {
    const Index count = std::min<Index>(5, 99 - first);
    const std::span<const float> logits = engine->logits(states, first, count);
    const std::vector<float> got(logits.begin(), logits.end());
    const auto begin = wanted.begin() + first * static_cast<Index>(vocab);
    EXPECT_EQ(got, std::vector<float>(begin, begin + count * static_cast<Index>(vocab)));
  }
  for (std::size_t i = 0; i < 99; ++i) {  // log softmax in long double
    const std::span<const float> row = std::span(wanted).subspan(i * vocab, vocab);
    long double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<long double>(logit));
    const long double expected = row[static_cast<std::size_t>(tokens[i + 1])] - std::log(sum);
    ASSERT_NEAR(score.logprobs[i], static_cast<double>(expected), 1e-12) << i;
  }
}

TEST_F(HiddenStatesTest, only_rows_of_the_text_have_logits) {
  const auto engine = open({});
  const HiddenStates states = engine->read(text(20, 3));
  EXPECT_GE(engine->logit_rows(), 12);
  EXPECT_THROW(engine->logits(states, 19, 1), Error);
  EXPECT_THROW(engine->logits(states, -1, 2), Error);
  EXPECT_THROW(engine->logits(states, 0, 0), Error);
  EXPECT_THROW(engine->logits(states, 0, engine->logit_rows() + 1), Error);
  EXPECT_THROW(engine->read(text(1, 1)), Error);
  EXPECT_THROW(engine->read(text(257, 1)), Error);
}

TEST_F(HiddenStatesTest, a_small_step_limits_the_rows_of_logits) {
  const auto engine = open({.prefill_chunk = 1, .max_sequences = 1});
  const auto tokens = text(90, 7);
  EXPECT_EQ(engine->score(tokens).logprobs, open({})->score(tokens).logprobs);
}

TEST_F(HiddenStatesTest, progress_counts_layers_as_parts_of_the_tokens_of_a_step) {
  std::vector<Index> told;
  const auto engine =
      open({.prefill_chunk = 32, .on_progress = [&](Index tokens) { told.push_back(tokens); }});
  engine->read(text(81, 3));  // steps of 32, 32 and 16 tokens
  std::vector<Index> wanted;
  for (const auto& [before, rows] : {std::pair<Index, Index>{0, 32}, {32, 32}, {64, 16}}) {
    for (Index layer = 0; layer < layers_; ++layer)
      wanted.push_back(before + rows * layer / layers_);
  }
  EXPECT_EQ(told, wanted);
  engine->read(text(81, 5));
  EXPECT_EQ(told.back(), 80 + 64 + 16 * (layers_ - 1) / layers_);
}

}  // namespace
}  // namespace hone::infer
