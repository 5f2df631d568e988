// SPDX-License-Identifier: Apache-2.0
// The real model with known answers from two independent programs, and everything that must not
// change a single token of them: chunks, threads, neighbors in the queue, cancelled requests.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "hone/core/file/json_io.h"
#include "hone/core/thread/thread_pool.h"
#include "tests/infer/engine_fixture.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

using test::greedy;
using test::open_stories;
using test::run_request;

struct KnownCase {
  std::string prompt, text;
  std::vector<TokenId> prompt_ids, generated_ids;
};

std::vector<KnownCase> read_cases(const std::filesystem::path& path) {
  std::vector<KnownCase> cases;
  const Json document = read_json_file(path);
  for (const Json& entry : document.at("cases")) {
    cases.push_back(
        {entry.at("prompt"), entry.at("text"), entry.at("prompt_ids"), entry.at("generated_ids")});
  }
  return cases;
}

EngineOptions float_options() {
  EngineOptions options;
  options.kv = KvDtype::Float32;
  options.activations = Activations::Float32;
  return options;
}

TEST(Stories, three_prompts_give_the_known_ids_and_text) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  HONE_REQUIRE_TEST_DATA(expected, "lm/stories260K.expected.json");
  const auto engine = open_stories(model, float_options());
  const auto cases = read_cases(expected);
  ASSERT_EQ(cases.size(), 3u);
  for (const KnownCase& known : cases) {
    EXPECT_EQ(engine->tokenizer().encode(known.prompt), known.prompt_ids);
    const auto got = run_request(*engine, greedy(known.prompt_ids, 100));
    EXPECT_EQ(got->tokens, known.generated_ids);
    EXPECT_EQ(got->text, known.text);
    EXPECT_EQ(got->last().finished, FinishReason::Length);
  }
}

TEST(Stories, f16_cache_gives_the_known_ids_too) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  HONE_REQUIRE_TEST_DATA(expected, "lm/stories260K.expected.json");
  const auto engine = open_stories(model);
  const KnownCase known = read_cases(expected).front();
  EXPECT_EQ(run_request(*engine, greedy(known.prompt_ids, 100))->tokens, known.generated_ids);
}

TEST(Stories, prefill_chunks_and_threads_leave_every_bit_of_the_scores_alone) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  HONE_REQUIRE_TEST_DATA(expected, "lm/stories260K.expected.json");
  const KnownCase known = read_cases(expected).front();
  std::vector<TokenId> tokens = known.prompt_ids;
  for (int i = 0; i < 3; ++i) {
    tokens.insert(tokens.end(), known.generated_ids.begin(), known.generated_ids.end());
  }
  std::vector<double> first;
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (const Index chunk : {1, 3, 16, 512}) {
      EngineOptions options;
      options.executor = &pool;
      options.prefill_chunk = chunk;
      const auto scores = open_stories(model, options)->score(tokens).logprobs;
      if (first.empty()) first = scores;
      EXPECT_EQ(scores, first) << threads << " threads, chunks of " << chunk;
    }
  }
}

TEST(Stories, decoding_equals_full_recomputation) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto engine = open_stories(model);
  const auto prompt = engine->tokenizer().encode("Tim and Sam");
  Request request = greedy(prompt, 60);
  request.logprobs = 1;
  const auto got = run_request(*engine, request);
  std::vector<TokenId> all = prompt;
  all.insert(all.end(), got->tokens.begin(), got->tokens.end());
  const auto scores = engine->score(all).logprobs;
  for (std::size_t i = 0; i < got->tokens.size(); ++i) {
    EXPECT_EQ(got->events[i].logprob, scores[prompt.size() - 1 + i]) << "token " << i;
  }
}

TEST(Stories, sampled_text_depends_on_the_seed_alone) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto engine = open_stories(model);
  const auto sample = [&](std::uint64_t seed, float temperature) {
    Request request = greedy(engine->tokenizer().encode("One day"), 40);
    request.sampling = {.temperature = temperature, .top_p = 0.95f, .seed = seed};
    return run_request(*engine, request)->tokens;
  };
  const auto text = sample(1, 0.8f);
  EXPECT_EQ(sample(1, 0.8f), text);
  EXPECT_NE(sample(2, 0.8f), text);
  EXPECT_NE(sample(1, 1.5f), text);
}

TEST(Stories, stop_strings_end_the_text_before_themselves) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto engine = open_stories(model, float_options());
  Request request = greedy(engine->tokenizer().encode("Once upon a time"), 100);
  request.stop = {"She loved", "never there"};
  const auto got = run_request(*engine, request);
  EXPECT_EQ(got->text, ", there was a little girl named Lily. ");
  EXPECT_EQ(got->last().finished, FinishReason::Stop);
  EXPECT_LT(got->tokens.size(), 40u);
}

TEST(Stories, stop_tokens_end_the_text_unless_ignored_or_masked) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto engine = open_stories(model, float_options());
  Request request = greedy(engine->tokenizer().encode("Once upon a time"), 450);
  request.ignore_eos = false;
  const auto natural = run_request(*engine, request);
  ASSERT_EQ(natural->last().finished, FinishReason::Stop);
  const auto length = static_cast<Index>(natural->tokens.size());
  EXPECT_NE(natural->text.back(), '\0');
  request.min_tokens = length + 5;
  const auto longer = run_request(*engine, request);
  EXPECT_GE(static_cast<Index>(longer->tokens.size()), length + 5);
  request.min_tokens = 0;
  request.ignore_eos = true;
  EXPECT_EQ(run_request(*engine, request)->tokens.size(), 450u);
}

TEST(Stories, the_context_ends_the_text) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  EngineOptions options = float_options();
  options.context = 40;
  const auto engine = open_stories(model, options);
  EXPECT_EQ(engine->info().context, 40);
  const auto got = run_request(*engine, greedy({1, 403, 407}, 100));
  EXPECT_EQ(got->tokens.size(), 37u);
  EXPECT_EQ(got->last().finished, FinishReason::Context);
  EXPECT_THROW(
      engine->submit(greedy(std::vector<TokenId>(40, 5), 1), std::make_shared<test::CollectSink>()),
      Error);
}

TEST(Stories, timings_and_cache_bytes_are_those_of_the_request) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto engine = open_stories(model);
  const auto got = run_request(*engine, greedy({1, 403, 407}, 70));
  const Event& last = got->last();
  EXPECT_EQ(last.timings.prompt_tokens, 3);
  EXPECT_EQ(last.timings.generated_tokens, 70);
  EXPECT_GT(last.timings.decode_s, 0);
  EXPECT_EQ(last.timings.ttft_s, last.timings.queue_s + last.timings.prompt_s);
  // 3 + 69 tokens are in the cache: three blocks of 32. 5 layers, 4 KV heads, head_dim 8, f16.
  EXPECT_EQ(last.kv_blocks, 3);
  EXPECT_EQ(last.kv_bytes, 3 * 32 * 5 * 4 * 2 * 8 * 2);
  EXPECT_EQ(engine->info().kv_bytes_per_token, 5 * 4 * 2 * 8 * 2);
}

TEST(Engine, requests_wait_in_order_and_a_full_queue_refuses) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  EngineOptions options = float_options();
  options.max_queue = 2;
  options.max_sequences = 1;
  const auto engine = open_stories(model, options);
  auto first = std::make_shared<test::CollectSink>(), second = first;
  second = std::make_shared<test::CollectSink>();
  engine->submit(greedy({1, 403}, 3), first);
  engine->submit(greedy({1, 407}, 3), second);
  try {
    engine->submit(greedy({1}, 3), first);
    FAIL() << "a third request was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::Resource);
  }
  EXPECT_EQ(engine->stats().waiting, 2);
  while (engine->step()) {
    EXPECT_TRUE(first->is_finished() || second->events.empty());
  }
  EXPECT_TRUE(second->is_finished());
  EXPECT_EQ(engine->stats().succeeded, 2);
  EXPECT_EQ(engine->stats().submitted, 2);
}

TEST(Engine, cancel_works_while_waiting_while_running_and_afterwards) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  EngineOptions options = float_options();
  options.max_sequences = 1;
  const auto engine = open_stories(model, options);
  auto running = std::make_shared<test::CollectSink>();
  auto waiting = std::make_shared<test::CollectSink>();
  const RequestId running_id = engine->submit(greedy({1, 403}, 50), running);
  const RequestId waiting_id = engine->submit(greedy({1, 403}, 50), waiting);
  for (int i = 0; i < 5; ++i) engine->step();
  engine->cancel(waiting_id);
  engine->cancel(running_id);
  engine->cancel(12345);
  while (engine->step()) {
  }
  EXPECT_EQ(running->last().finished, FinishReason::Cancelled);
  EXPECT_EQ(running->tokens.size(), 5u);
  EXPECT_EQ(waiting->last().finished, FinishReason::Cancelled);
  EXPECT_TRUE(waiting->tokens.empty());
  engine->cancel(running_id);
  EXPECT_EQ(engine->stats().cancelled, 2);
  EXPECT_EQ(run_request(*engine, greedy({1, 403}, 5))->tokens, running->tokens);
}

TEST(Engine, a_full_sink_parks_its_request_and_loses_nothing) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto engine = open_stories(model, float_options());
  const auto free_run = run_request(*engine, greedy({1, 403}, 8));
  auto slow = std::make_shared<test::CollectSink>();
  engine->submit(greedy({1, 403}, 8), slow);
  engine->step();
  slow->refuse_next(3);
  EXPECT_TRUE(engine->step());  // a token that the sink refuses
  EXPECT_FALSE(engine->step());
  EXPECT_FALSE(engine->step());
  while (!slow->is_finished()) engine->step();
  EXPECT_EQ(slow->tokens, free_run->tokens);
  EXPECT_EQ(slow->text, free_run->text);
}

TEST(Engine, run_serves_requests_from_another_thread_until_stopped) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto engine = open_stories(model, float_options());
  struct Signal final : EventSink {
    bool try_push(Event&& event) noexcept override {
      if (event.finished) done.store(true);
      if (event.finished) done.notify_all();
      return true;
    }
    std::atomic<bool> done = false;
  };
  std::jthread worker([&](const std::stop_token& stop) { engine->run(stop); });
  for (int i = 0; i < 3; ++i) {
    auto sink = std::make_shared<Signal>();
    engine->submit(greedy({1, 403}, 5), sink);
    sink->done.wait(false);
  }
  EXPECT_EQ(engine->stats().succeeded, 3);
}

TEST(Engine, refuses_requests_that_cannot_run) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto engine = open_stories(model, float_options());
  const auto sink = std::make_shared<test::CollectSink>();
  EXPECT_THROW(engine->submit(greedy({}, 5), sink), Error);
  EXPECT_THROW(engine->submit(greedy({512}, 5), sink), Error);
  EXPECT_THROW(engine->submit(greedy({-1}, 5), sink), Error);
  EXPECT_THROW(engine->submit(greedy({1}, 0), sink), Error);
  Request request = greedy({1}, 5);
  request.stop = {""};
  EXPECT_THROW(engine->submit(request, sink), Error);
  EXPECT_THROW(engine->score(std::vector<TokenId>{1}), Error);
  EXPECT_EQ(engine->stats().submitted, 0);
}

}  // namespace
}  // namespace hone::infer
