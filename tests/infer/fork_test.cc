// SPDX-License-Identifier: Apache-2.0
// Requests that are submitted together share the work on their prompts and nothing else. A request
// that fails shares nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/philox.h"
#include "tests/infer/engine_fixture.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

using testing::HasSubstr;

class Forks : public testing::Test {
 protected:
  using Sinks = std::vector<std::shared_ptr<test::CollectSink>>;

  Forks() {
    model_io::Architecture a = hone::test::tiny_architecture();
    a.context = 512;
    const hone::test::TinyModel model(a);
    model_io::write_hugging_face(path_, model.source());
  }
  std::unique_ptr<Engine> open(EngineOptions options = {}) const {
    options.executor = &serial_executor();
    options.need_tokenizer = false;
    return Engine::open_or_throw(path_, options);
  }
  static std::vector<TokenId> prompt(Index length, std::uint64_t seed = 1) {
    PhiloxStream random(seed);
    std::vector<TokenId> tokens;
    for (Index i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(random.below(48)));
    return tokens;
  }
  // Answers to the prompt that differ.
  static Request choice(const std::vector<TokenId>& tokens, std::uint32_t number, Index most = 8) {
    Request request = test::greedy(tokens, most);
    request.sampling = {.temperature = 1.5f, .seed = 5, .choice = number};
    request.logprobs = 1;
    return request;
  }
  static std::vector<Request> choices(const std::vector<TokenId>& tokens, std::uint32_t count) {
    std::vector<Request> requests;
    for (std::uint32_t i = 0; i < count; ++i) requests.push_back(choice(tokens, i));
    return requests;
  }
  static std::vector<std::shared_ptr<EventSink>> as_sinks(const Sinks& sinks) {
    return {sinks.begin(), sinks.end()};
  }
  static Sinks make_sinks(std::size_t count) {
    Sinks sinks;
    for (std::size_t i = 0; i < count; ++i) sinks.push_back(std::make_shared<test::CollectSink>());
    return sinks;
  }
  static void finish(Engine& engine, const Sinks& sinks) {
    while (!std::ranges::all_of(sinks, &test::CollectSink::is_finished)) engine.step();
  }
  static Sinks run_together(Engine& engine, const std::vector<Request>& requests) {
    Sinks sinks = make_sinks(requests.size());
    engine.submit(requests, as_sinks(sinks));
    finish(engine, sinks);
    return sinks;
  }
  // Each text, and the probability of each of its tokens, is that of the request on its own.
  void expect_as_alone(const Sinks& sinks, const std::vector<Request>& requests) const {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto alone = test::run_request(*open(), requests[i]);
      EXPECT_EQ(sinks[i]->tokens, alone->tokens) << i;
      ASSERT_EQ(sinks[i]->events.size(), alone->events.size()) << i;
      for (std::size_t e = 0; e < alone->events.size(); ++e) {
        EXPECT_EQ(sinks[i]->events[e].logprob, alone->events[e].logprob) << i << ", token " << e;
      }
    }
  }
  static Index cached(const test::CollectSink& sink) { return sink.last().timings.cached_tokens; }

  hone::test::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "model";
};

// Each request computes the last token of the prompt again, because its output is sampled anew.
TEST_F(Forks, compute_a_prompt_once_whatever_its_length) {
  for (const Index length : {1, 2, 31, 32, 33, 50, 64, 65, 200}) {
    const auto engine = open({.prefill_chunk = 64});
    const Sinks sinks = run_together(*engine, choices(prompt(length), 4));
    EXPECT_EQ(cached(*sinks[0]), 0) << length;
    for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(cached(*sinks[i]), length - 1) << length;
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.cached_tokens, 3 * (length - 1)) << length;
    EXPECT_EQ(stats.rows, length + 3 + 4 * 7) << length;
    EXPECT_EQ(stats.succeeded, 4);
  }
}

TEST_F(Forks, give_each_request_the_text_that_it_gets_alone) {
  for (const Index length : {33, 64, 90}) {
    const auto requests = choices(prompt(length), 4);
    const auto engine = open();
    const Sinks sinks = run_together(*engine, requests);
    expect_as_alone(sinks, requests);
    EXPECT_NE(sinks[0]->tokens, sinks[1]->tokens) << "the choices differ";
    EXPECT_NE(sinks[1]->tokens, sinks[2]->tokens);
  }
}

TEST_F(Forks, of_several_prompts_take_the_first_with_their_own) {
  const auto one = prompt(50, 1), other = prompt(77, 2);
  std::vector<Request> requests;
  for (const auto& tokens : {one, other, one, other, one}) {
    requests.push_back(choice(tokens, static_cast<std::uint32_t>(requests.size())));
  }
  requests.push_back(choice(prompt(50, 3), 0));
  const auto engine = open();
  const Sinks sinks = run_together(*engine, requests);
  const Index expected[] = {0, 0, 49, 76, 49, 0};
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(cached(*sinks[i]), expected[i]) << i;
  expect_as_alone(sinks, requests);
}

TEST_F(Forks, have_ids_of_their_own_and_end_on_their_own) {
  auto requests = choices(prompt(40), 4);
  requests[1].max_tokens = 2;
  requests[2].max_tokens = 30;
  for (const std::size_t cancelled : {0, 2}) {
    const auto engine = open();
    const Sinks sinks = make_sinks(4);
    const std::vector<RequestId> ids = engine->submit(requests, as_sinks(sinks));
    ASSERT_EQ(ids.size(), 4u);
    for (std::size_t i = 1; i < 4; ++i) EXPECT_LT(ids[i - 1], ids[i]);
    engine->cancel(ids[cancelled]);
    finish(*engine, sinks);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(sinks[i]->last().request, ids[i]);
      if (i == cancelled) {
        EXPECT_EQ(sinks[i]->last().finished, FinishReason::Cancelled);
      } else {
        EXPECT_EQ(sinks[i]->tokens, test::run_request(*open(), requests[i])->tokens) << i;
      }
    }
  }
}

TEST_F(Forks, run_in_turns_where_few_fit) {
  const auto requests = choices(prompt(70), 5);
  for (const Index sequences : {1, 2}) {
    const auto engine = open({.max_sequences = sequences});
    expect_as_alone(run_together(*engine, requests), requests);
  }
}

TEST_F(Forks, are_all_accepted_or_none) {
  const auto engine = open({.max_queue = 3, .max_sequences = 1});
  const Sinks first = make_sinks(2), second = make_sinks(2), four = make_sinks(4);
  const auto requests = choices(prompt(10), 4);
  const std::vector<Request> two(requests.begin(), requests.begin() + 2);
  engine->submit(two, as_sinks(first));
  try {
    engine->submit(two, as_sinks(second));
    FAIL() << "accepted four for three places";
  } catch (const RefusedError& error) {
    EXPECT_EQ(error.refusal(), Refusal::QueueFull);
    EXPECT_EQ(error.category(), ErrorCategory::Resource);
    EXPECT_THAT(error.what(), HasSubstr("queue_full"));
  }
  EXPECT_EQ(engine->stats().submitted, 2);
  // What could never be accepted is wrong, not early.
  EXPECT_THAT(hone::test::refusal([&] { engine->submit(requests, as_sinks(four)); }),
              HasSubstr("at most 3"));
  finish(*engine, first);
  for (const Sinks& sinks : {second, four}) {
    for (const auto& sink : sinks) EXPECT_TRUE(sink->events.empty());
  }
  engine->submit(two, as_sinks(second));
  finish(*engine, second);
  EXPECT_EQ(engine->stats().submitted, 4);
  EXPECT_EQ(engine->stats().succeeded, 4);
}

TEST_F(Forks, count_as_several_of_their_tenant) {
  const auto engine = open({.max_tenant_requests = 2});
  const auto requests = choices(prompt(10), 3);
  const std::vector<Request> two(requests.begin(), requests.begin() + 2);
  EXPECT_THAT(hone::test::refusal([&] { engine->submit(requests, as_sinks(make_sinks(3))); }),
              HasSubstr("at most 2"));
  const auto alone = std::make_shared<test::CollectSink>();
  engine->submit(requests[0], alone);
  try {
    engine->submit(two, as_sinks(make_sinks(2)));
    FAIL() << "accepted a third request of a tenant";
  } catch (const RefusedError& error) {
    EXPECT_EQ(error.refusal(), Refusal::TenantFull);
  }
  finish(*engine, {alone});
  run_together(*engine, two);
  EXPECT_EQ(engine->stats().submitted, 3);
}

TEST_F(Forks, are_refused_together_if_one_of_them_is_wrong) {
  const auto engine = open();
  const auto good = choices(prompt(10), 3);
  const auto said = [&](const std::vector<Request>& requests, std::size_t sinks) {
    return hone::test::refusal([&] { engine->submit(requests, as_sinks(make_sinks(sinks))); });
  };
  std::vector<Request> bad = good;
  bad[2].salt = 7;
  EXPECT_THAT(said(bad, 3), HasSubstr("tenants"));
  bad = good;
  bad[1].tokens.clear();
  EXPECT_THAT(said(bad, 3), HasSubstr("prompt"));
  bad = good;
  bad[2].sampling.top_p = 0;
  EXPECT_THAT(said(bad, 3), HasSubstr("top_p"));
  EXPECT_THAT(said(good, 2), HasSubstr("sink"));
  EXPECT_THAT(said({}, 0), HasSubstr("submit"));
  EXPECT_THAT(hone::test::refusal([&] {
                engine->submit(good, {std::make_shared<test::CollectSink>(), nullptr, nullptr});
              }),
              HasSubstr("sink"));
  EXPECT_EQ(engine->stats().submitted, 0);
  EXPECT_FALSE(engine->step());
  run_together(*engine, good);
  EXPECT_EQ(engine->stats().succeeded, 3);
}

// The model fails in a later step, after blocks of the prompt went to the cache of prefixes.
TEST_F(Forks, take_nothing_from_a_request_that_failed) {
  bool fails = false;
  const auto engine = open({.on_progress = [&](Index) {
    if (fails) throw std::runtime_error("the model broke");
  }});
  const Request request = choice(prompt(100), 0);
  const auto expected = test::run_request(*open(), request)->tokens;
  const auto fail_after_prompt = [&] {
    const auto sink = std::make_shared<test::CollectSink>();
    engine->submit(request, sink);
    while (sink->tokens.empty()) engine->step();
    fails = true;
    while (!sink->is_finished()) engine->step();
    fails = false;
    EXPECT_EQ(sink->last().finished, FinishReason::Failed);
    EXPECT_THAT(sink->last().error, HasSubstr("broke"));
    return sink;
  };
  EXPECT_EQ(cached(*fail_after_prompt()), 0);
  EXPECT_EQ(engine->stats().kv_used_bytes, 0);
  const auto second = test::run_request(*engine, request);
  EXPECT_EQ(cached(*second), 0) << "all tokens are computed again";
  EXPECT_EQ(second->tokens, expected);
  const auto third = test::run_request(*engine, request);
  EXPECT_EQ(cached(*third), 96) << "what a request leaves that succeeds";
  EXPECT_EQ(third->tokens, expected);
  EXPECT_EQ(cached(*fail_after_prompt()), 96);
  EXPECT_EQ(cached(*test::run_request(*engine, request)), 0) << "even what others had computed";
  EXPECT_EQ(engine->stats().failed, 2);
}

}  // namespace
}  // namespace hone::infer
