// SPDX-License-Identifier: Apache-2.0
// The int8 cache in an engine: texts that do not depend on the company, one bad request among
// others, and what it costs in quality on the real model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "hone/core/philox.h"
#include "hone/core/thread/thread_pool.h"
#include "tests/infer/engine_fixture.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

using test::CollectSink;
using test::greedy;
using test::open_stories;
using Sinks = std::vector<std::shared_ptr<CollectSink>>;

void finish(Engine& engine, const Sinks& sinks) {
  while (!std::ranges::all_of(sinks, &CollectSink::is_finished)) engine.step();
}

TEST(Int8Kv, a_request_gets_the_bits_that_it_gets_alone) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto requests = [](const Engine& engine) {
    std::vector<Request> out;
    for (const char* text : {"Once upon a time", "Tim and Sam went to the park. One day, they saw",
                             "Once upon a time, there was a", "The cat"}) {
      out.push_back(greedy(engine.tokenizer().encode(text), 40 + 9 * std::ssize(out)));
      out.back().logprobs = 1;
    }
    return out;
  };
  ThreadPool pool(3);
  for (const Index chunk : {3, 512}) {
    const auto together =
        open_stories(model, {.executor = &pool, .kv = KvDtype::Int8, .prefill_chunk = chunk});
    Sinks sinks;
    for (Request& request : requests(*together)) {
      sinks.push_back(std::make_shared<CollectSink>());
      together->submit(std::move(request), sinks.back());
    }
    finish(*together, sinks);
    for (std::size_t i = 0; i < sinks.size(); ++i) {
      const auto engine = open_stories(model, {.kv = KvDtype::Int8, .max_sequences = 1});
      const auto alone = test::run_request(*engine, requests(*engine)[i]);
      EXPECT_EQ(sinks[i]->tokens, alone->tokens) << i;
      for (std::size_t e = 0; e < alone->events.size(); ++e) {
        ASSERT_EQ(sinks[i]->events[e].logprob, alone->events[e].logprob) << i << " " << e;
      }
    }
  }
}

// A token whose embedding is not finite stands for any cause of such keys and values.
TEST(Int8Kv, keys_that_are_not_finite_fail_their_request_alone) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const hone::test::TemporaryFolder folder;
    const hone::test::TinyModel model(hone::test::tiny_architecture());
    for (const model_io::NamedMatrix& tensor : model.tensors()) {
      if (tensor.name != "model.embed_tokens.weight") continue;
      auto* values = const_cast<std::byte*>(tensor.matrix.bytes.data());
      reinterpret_cast<float*>(values)[7 * tensor.matrix.cols + 3] = bad;
    }
    model_io::write_hugging_face(folder.path() / "model", model.source());
    for (const KvDtype kv : {KvDtype::Float16, KvDtype::Float32, KvDtype::Int8}) {
      const auto open = [&] {
        return Engine::open_or_throw(
            folder.path() / "model",
            {.executor = &serial_executor(), .need_tokenizer = false, .kv = kv});
      };
      const auto engine = open();
      Sinks sinks;
      for (const auto& prompt : std::vector<std::vector<TokenId>>{
               {1, 5, 9}, {1, 5, 7}, {1, 7, 9, 4, 8}, {1, 30, 31, 32}}) {
        sinks.push_back(std::make_shared<CollectSink>());
        engine->submit(greedy(prompt, 12), sinks.back());
      }
      finish(*engine, sinks);
      for (const std::size_t i : {1, 2}) {
        EXPECT_EQ(sinks[i]->last().finished, FinishReason::Failed);
        EXPECT_NE(sinks[i]->last().error.find("finite"), std::string::npos);
        EXPECT_TRUE(sinks[i]->tokens.empty());
      }
      EXPECT_EQ(sinks[0]->tokens, test::run_request(*open(), greedy({1, 5, 9}, 12))->tokens);
      EXPECT_EQ(sinks[3]->tokens, test::run_request(*open(), greedy({1, 30, 31, 32}, 12))->tokens);
      const auto after = test::run_request(*engine, greedy({1, 5, 9}, 12));
      EXPECT_EQ(after->tokens, sinks[0]->tokens) << "blocks of the failed are used again";
    }
  }
}

// The distributions of the real model over every token of a text.
struct Scores {
  double nll = 0;                // mean
  std::vector<double> logprobs;  // [tokens, vocab]
  std::size_t vocab = 0;
};

Scores score(const std::filesystem::path& model, KvDtype kv, const std::string& text) {
  const auto engine = open_stories(model, {.kv = kv});
  const auto tokens = engine->tokenizer().encode(text, {.add_bos = false});
  Scores scores;
  Index count = 0;
  const auto note = [&](Index, Index rows, std::span<const float> logits) {
    scores.vocab = logits.size() / static_cast<std::size_t>(rows);
    for (; !logits.empty(); logits = logits.subspan(scores.vocab)) {
      const auto row = logits.first(scores.vocab);
      const double most = *std::ranges::max_element(row);
      double sum = 0;
      for (const float logit : row) sum += std::exp(logit - most);
      for (const float logit : row) scores.logprobs.push_back(logit - most - std::log(sum));
    }
  };
  for (std::size_t at = 0; at + 511 <= tokens.size(); at += 511) {
    std::vector<TokenId> window{1};
    const auto begin = tokens.begin() + static_cast<Index>(at);
    window.insert(window.end(), begin, begin + 511);
    for (const double logprob : engine->score(window, {.on_logits = note}).logprobs) {
      scores.nll -= logprob, ++count;
    }
  }
  scores.nll /= static_cast<double>(count);
  return scores;
}

TEST(Int8Kv, hardly_changes_the_likelihood_of_real_text) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  HONE_REQUIRE_TEST_DATA(text_file, "text/tinyshakespeare.txt");
  std::ifstream file(text_file);
  std::string text(6000, '\0');
  file.read(text.data(), std::ssize(text));
  const Scores exact = score(model, KvDtype::Float32, text),
               int8 = score(model, KvDtype::Int8, text);
  EXPECT_NEAR(int8.nll, exact.nll, 0.005) << "nats per token, so 0.5 % of the perplexity";
  ASSERT_EQ(int8.logprobs.size(), exact.logprobs.size());
  const std::size_t rows = exact.logprobs.size() / exact.vocab;
  ASSERT_GE(rows, 2000u);
  double divergence = 0;
  for (std::size_t i = 0; i < exact.logprobs.size(); ++i) {
    divergence += std::exp(exact.logprobs[i]) * (exact.logprobs[i] - int8.logprobs[i]);
  }
  EXPECT_LE(divergence / static_cast<double>(rows), 0.01) << "mean Kullback-Leibler divergence";
}

}  // namespace
}  // namespace hone::infer
