// SPDX-License-Identifier: Apache-2.0
// Requests that run together on the real model: each gets the text that it gets alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "hone/core/philox.h"
#include "hone/core/thread/thread_pool.h"
#include "tests/infer/engine_fixture.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

using test::CollectSink;
using test::open_stories;
using Sinks = std::vector<std::shared_ptr<CollectSink>>;

// Requests of different lengths, some of them sampled, with prompts that partly begin alike.
std::vector<Request> requests(const Engine& engine) {
  const std::string shared =
      "Once upon a time, there was a little girl named Lily. She loved to play outside in the park "
      "with her friends. One day, she saw ";
  std::vector<Request> out;
  for (const std::string& text :
       {std::string("Once upon a time"), shared, std::string("Tim and Sam"), shared + "a big dog",
        std::string("The cat"), shared + shared, shared + "a red ball", std::string("One day"),
        std::string("Mom said"), shared + "a cat"}) {
    Request request = test::greedy(engine.tokenizer().encode(text), 20 + 7 * std::ssize(out) % 40);
    if (out.size() % 3 == 2) {
      request.sampling = {.temperature = 0.8f, .top_p = 0.95f, .seed = out.size()};
    }
    request.logprobs = 1;
    out.push_back(std::move(request));
  }
  return out;
}

class Together : public testing::Test {
 protected:
  void SetUp() override {
    HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
    model_ = model;
    const auto engine = open_stories(model_, {.max_sequences = 1});
    for (const Request& request : requests(*engine)) {
      const auto alone = open_stories(model_, {.max_sequences = 1});  // no cached prefix
      alone_.push_back(test::run_request(*alone, request));
    }
  }
  static Sinks submit_all(Engine& engine) {
    Sinks sinks;
    for (Request& request : requests(engine)) {
      sinks.push_back(std::make_shared<CollectSink>());
      engine.submit(std::move(request), sinks.back());
    }
    return sinks;
  }
  static void finish(Engine& engine, const Sinks& sinks) {
    while (!std::ranges::all_of(sinks, &CollectSink::is_finished)) engine.step();
  }
  void expect_as_alone(const Sinks& sinks, const std::string& what) const {
    for (std::size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_EQ(sinks[i]->tokens, alone_[i]->tokens) << what << ", request " << i;
      EXPECT_EQ(sinks[i]->text, alone_[i]->text) << what << ", request " << i;
      EXPECT_EQ(sinks[i]->last().finished, alone_[i]->last().finished);
      for (std::size_t e = 0; e < sinks[i]->tokens.size(); ++e) {
        ASSERT_EQ(sinks[i]->events[e].logprob, alone_[i]->events[e].logprob)
            << what << ", request " << i << ", token " << e;
      }
    }
  }

  std::filesystem::path model_;
  Sinks alone_;
};

TEST_F(Together, any_number_of_sequences_threads_and_chunks_gives_the_text_of_each_alone) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const Index sequences : {2, 5, 16}) {
      for (const Index chunk : {3, 16, 512}) {
        const auto engine = open_stories(
            model_, {.executor = &pool, .prefill_chunk = chunk, .max_sequences = sequences});
        const Sinks sinks = submit_all(*engine);
        finish(*engine, sinks);
        expect_as_alone(
            sinks, std::to_string(sequences) + " sequences, chunks of " + std::to_string(chunk));
        const EngineStats stats = engine->stats();
        EXPECT_EQ(stats.succeeded, 10);
        EXPECT_EQ(stats.running + stats.waiting, 0);
      }
    }
  }
}

TEST_F(Together, a_warm_cache_of_prefixes_changes_no_bit_and_saves_their_work) {
  const auto engine = open_stories(model_, {});
  for (int round = 0; round < 2; ++round) {
    const Sinks sinks = submit_all(*engine);
    finish(*engine, sinks);
    expect_as_alone(sinks, "round " + std::to_string(round));
  }
  Index of_prompts = 0;
  for (const Request& request : requests(*engine)) of_prompts += std::ssize(request.tokens);
  EXPECT_GT(engine->stats().cached_tokens, of_prompts / 2);
}

// 5 layers, 4 KV heads, head_dim 8, f16: 20 KiB a block of 32 tokens.
TEST_F(Together, a_cache_for_few_texts_preempts_and_changes_no_bit) {
  const auto tokens_of = [&](EngineOptions options, Index* preemptions) {
    const auto engine = open_stories(model_, std::move(options));
    Sinks sinks;
    for (const TokenId first : {403, 407, 410, 420, 430, 440}) {
      sinks.push_back(std::make_shared<CollectSink>());
      engine->submit(test::greedy({1, first}, 150), sinks.back());
    }
    finish(*engine, sinks);
    *preemptions = engine->stats().preemptions;
    std::vector<std::vector<TokenId>> tokens;
    for (const auto& sink : sinks) tokens.push_back(sink->tokens);
    return tokens;
  };
  Index preemptions = 0;
  const auto expected = tokens_of({.context = 160}, &preemptions);
  EXPECT_EQ(preemptions, 0);
  for (const Index blocks : {6, 9, 12}) {
    EXPECT_EQ(tokens_of({.context = 160, .kv_bytes = blocks * 32 * 640}, &preemptions), expected);
    EXPECT_GT(preemptions, 0) << blocks << " blocks";
  }
}

TEST_F(Together, arrivals_cancellations_and_slow_readers_leave_the_others_alone) {
  Index cancelled = 0;
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    PhiloxStream random(seed);
    const auto engine = open_stories(model_, {.prefill_chunk = 16, .max_sequences = 4});
    std::vector<Request> waiting = requests(*engine);
    Sinks sinks(waiting.size());
    std::vector<RequestId> ids(waiting.size());
    std::vector<bool> is_cancelled(waiting.size());
    std::size_t arrived = 0;
    const auto is_done = [&] {
      return arrived == sinks.size() && std::ranges::all_of(sinks, &CollectSink::is_finished);
    };
    while (!is_done()) {
      if (arrived < sinks.size() && random.below(4) == 0) {
        sinks[arrived] = std::make_shared<CollectSink>();
        ids[arrived] = engine->submit(waiting[arrived], sinks[arrived]);
        ++arrived;
      }
      if (arrived > 0 && random.below(8) == 0) {
        sinks[random.below(static_cast<std::uint32_t>(arrived))]->refuse_next(3);
      }
      if (arrived > 0 && random.below(30) == 0) {
        const std::size_t at = random.below(static_cast<std::uint32_t>(arrived));
        is_cancelled[at] = true;
        engine->cancel(ids[at]);
      }
      engine->step();
      const EngineStats stats = engine->stats();
      ASSERT_EQ(stats.submitted, static_cast<Index>(arrived));
      ASSERT_GE(stats.waiting, 0);
      ASSERT_LE(stats.running, 10);
    }
    for (std::size_t i = 0; i < sinks.size(); ++i) {
      const auto& expected = alone_[i]->tokens;
      if (!is_cancelled[i]) {
        EXPECT_EQ(sinks[i]->tokens, expected) << "request " << i;
      }
      ASSERT_LE(sinks[i]->tokens.size(), expected.size());
      EXPECT_TRUE(std::equal(sinks[i]->tokens.begin(), sinks[i]->tokens.end(), expected.begin()))
          << "cancelled request " << i;
      if (sinks[i]->tokens.size() < expected.size()) {
        EXPECT_EQ(sinks[i]->last().finished, FinishReason::Cancelled) << "request " << i;
      }
    }
    EXPECT_EQ(engine->stats().failed, 0);
    cancelled += engine->stats().cancelled;
  }
  EXPECT_GT(cancelled, 0);
}

TEST_F(Together, scores_beside_requests_are_those_of_an_idle_engine) {
  const auto engine = open_stories(model_, {.prefill_chunk = 16});
  const auto tokens = engine->tokenizer().encode(
      "Once upon a time, there was a little girl named Lily. She loved to play outside.");
  const auto idle = open_stories(model_, {})->score(tokens).logprobs;
  const Sinks sinks = submit_all(*engine);
  for (int i = 0; i < 5; ++i) engine->step();
  EXPECT_EQ(engine->score(tokens).logprobs, idle);
  finish(*engine, sinks);
  expect_as_alone(sinks, "beside a score");
  EXPECT_THROW(engine->score(tokens, {.on_logits =
                                          [](Index, Index, std::span<const float>) {
                                            throw std::runtime_error("the caller's own");
                                          }}),
               std::runtime_error);
  EXPECT_EQ(engine->score(tokens).logprobs, idle);
}

// Runs something on the engine thread, within a step.
struct ActingSink final : infer::CollectSink {
  ActingSink() : infer::CollectSink([this](const Event& event) { return act(event), true; }) {}
  std::function<void(const Event&)> act;
};

TEST_F(Together, a_request_cancelled_before_the_engine_took_it_ends) {
  const auto engine = open_stories(model_, {});
  const auto acting = std::make_shared<ActingSink>();
  const auto cancelled = std::make_shared<CollectSink>();
  acting->act = [&](const Event&) {
    if (acting->events.size() != 1) return;
    engine->cancel(engine->submit(test::greedy({1, 403}, 50), cancelled));
  };
  engine->submit(test::greedy({1, 407}, 5), acting);
  for (int i = 0; i < 20; ++i) engine->step();
  ASSERT_TRUE(cancelled->is_finished());
  EXPECT_EQ(cancelled->last().finished, FinishReason::Cancelled);
  EXPECT_TRUE(cancelled->tokens.empty());
  EXPECT_FALSE(engine->step());
}

TEST_F(Together, whoever_sees_the_last_event_may_submit_the_next_request) {
  const auto engine = open_stories(model_, {.max_queue = 1});
  const auto acting = std::make_shared<ActingSink>();
  const auto next = std::make_shared<CollectSink>();
  acting->act = [&](const Event& event) {
    if (event.finished) engine->submit(test::greedy({1, 403}, 2), next);
  };
  engine->submit(test::greedy({1, 407}, 1), acting);
  while (!next->is_finished()) engine->step();
  EXPECT_EQ(engine->stats().succeeded, 2);
}

TEST_F(Together, a_text_without_a_limit_ends_with_the_context) {
  const auto engine = open_stories(model_, {.context = 60});
  const auto got =
      test::run_request(*engine, test::greedy({1, 403}, std::numeric_limits<Index>::max()));
  EXPECT_EQ(got->tokens.size(), 58u);
  EXPECT_EQ(got->last().finished, FinishReason::Context);
}

TEST_F(Together, a_bad_text_to_score_harms_nobody) {
  const auto engine = open_stories(model_, {});
  const Sinks sinks = submit_all(*engine);
  engine->step();
  for (const TokenId bad : {-1, 512}) {
    EXPECT_THROW(engine->score(std::vector<TokenId>{1, bad, 5}), Error);
    EXPECT_THROW(engine->score(std::vector<TokenId>{1, 5, bad}), Error);
  }
  finish(*engine, sinks);
  expect_as_alone(sinks, "beside bad scores");
}

TEST_F(Together, an_engine_that_goes_away_cancels_what_it_has) {
  auto engine = open_stories(model_, {.max_sequences = 2});
  Sinks sinks = submit_all(*engine);
  for (int i = 0; i < 3; ++i) engine->step();
  sinks.push_back(std::make_shared<CollectSink>());
  engine->submit(test::greedy({1, 403}, 5), sinks.back());
  engine.reset();
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->is_finished());
    EXPECT_EQ(sink->last().finished, FinishReason::Cancelled);
  }
}

}  // namespace
}  // namespace hone::infer
