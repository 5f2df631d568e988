// SPDX-License-Identifier: Apache-2.0
// Speculation on the real model: whatever drafts, texts are those without.
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "hone/core/thread/thread_pool.h"
#include "tests/infer/speculation_fixture.h"
#include "tests/support/scripted_clock.h"

namespace hone::infer {
namespace {

using test::CollectSink;
using test::expect_equal;
using test::greedy;
using test::open_stories;
using test::ReplayDrafts;
using test::run_request;
using test::with_depth;

using Sinks = std::vector<std::shared_ptr<CollectSink>>;
using Tokens = std::vector<TokenId>;

class Speculation : public testing::Test {
 protected:
  void SetUp() override {
    HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
    model_ = model;
    plain_ = open_stories(model_);
  }
  Tokens encode(const std::string& text) const { return plain_->tokenizer().encode(text); }
  // Copies from its prompt, so that n-grams are found.
  Tokens repetitive() const {
    const std::string line = "Lily and Tim went to the park. Lily and Tim saw a big dog. ";
    return encode(line + line + "Lily and Tim");
  }
  std::vector<Tokens> prompts() const {
    return {encode("Once upon a time"), repetitive(), encode("One day, a boy named Tim")};
  }
  static Request sampled(Tokens prompt, Index tokens, std::uint64_t seed) {
    Request request = greedy(std::move(prompt), tokens);
    request.sampling = {.temperature = 0.8f, .seed = seed};
    return request;
  }
  std::unique_ptr<Engine> open(DraftOptions draft, EngineOptions options = {}) const {
    options.draft = std::move(draft);
    return open_stories(model_, options);
  }
  static Sinks submit_all(Engine& engine, const std::vector<Request>& requests) {
    Sinks sinks;
    for (const Request& request : requests) {
      sinks.push_back(std::make_shared<CollectSink>());
      engine.submit(request, sinks.back());
    }
    return sinks;
  }
  static void finish(Engine& engine, const Sinks& sinks) {
    while (!std::ranges::all_of(sinks, &CollectSink::is_finished)) engine.step();
  }

  std::filesystem::path model_;
  std::unique_ptr<Engine> plain_;
};

TEST_F(Speculation, n_grams_of_any_depth_threads_and_chunks_give_the_text_without) {
  for (const Tokens& prompt : prompts()) {
    const auto want = run_request(*plain_, greedy(prompt, 100));
    for (const int threads : {1, 2, 4}) {
      ThreadPool pool(threads);
      for (const Index chunk : {1, 3, 16, 512}) {
        const auto engine = open({.ngram = true}, {.executor = &pool, .prefill_chunk = chunk});
        for (Index depth = 0; depth <= 8; ++depth) {
          if (threads > 1 && depth % 4 != 0) continue;
          const auto auto_depth = depth == 0 ? std::nullopt : std::optional(depth);
          const auto got = run_request(*engine, with_depth(greedy(prompt, 100), auto_depth));
          expect_equal(*got, *want, concat(threads, " threads, chunk ", chunk, ", depth ", depth));
        }
        EXPECT_GT(engine->stats().accepted, 0);
      }
    }
  }
}

TEST_F(Speculation, drafts_of_the_model_itself_are_all_accepted_and_change_nothing) {
  for (const Tokens& prompt : prompts()) {
    const auto want = run_request(*plain_, greedy(prompt, 100));
    const auto want_sampled = run_request(*plain_, sampled(prompt, 100, 7));
    for (const int threads : {1, 2, 4}) {
      ThreadPool pool(threads);
      const auto engine = open({.model = model_}, {.executor = &pool});
      for (Index depth = 1; depth <= 8; ++depth) {
        const auto got = run_request(*engine, with_depth(greedy(prompt, 100), depth));
        expect_equal(*got, *want, concat(threads, " threads, depth ", depth));
        const auto coupled = run_request(*engine, with_depth(sampled(prompt, 100, 7), depth));
        expect_equal(*coupled, *want_sampled, concat(threads, " threads, sampled, depth ", depth));
      }
      const EngineStats stats = engine->stats();
      EXPECT_EQ(stats.accepted, stats.examined);
      EXPECT_EQ(stats.examined, stats.drafted);
      EXPECT_GT(stats.accepted, 1000);
    }
  }
}

TEST_F(Speculation, two_hundred_seeds_give_the_same_texts_with_n_grams_and_without) {
  const auto engine = open({.ngram = true});
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto want = run_request(*plain_, sampled(repetitive(), 40, seed));
    const auto depth = seed % 3 == 0 ? std::nullopt : std::optional<Index>(1 + seed % 8);
    const auto got = run_request(*engine, with_depth(sampled(repetitive(), 40, seed), depth));
    ASSERT_EQ(got->tokens, want->tokens) << "seed " << seed;
  }
  EXPECT_GT(engine->stats().accepted, 200);
  EXPECT_GT(engine->stats().examined, engine->stats().accepted);
}

// Requests of all kinds, whose drafts are right, wrong, or from the text itself.
TEST_F(Speculation, among_sixteen_others_and_with_a_warm_cache_changes_no_text) {
  std::vector<Request> requests;
  for (Index i = 0; i < 17; ++i) {
    Tokens prompt = prompts()[static_cast<std::size_t>(i % 3)];
    prompt.push_back(static_cast<TokenId>(403 + i));
    const Index tokens = 30 + 5 * (i % 7);
    requests.push_back(i % 2 == 0 ? greedy(prompt, tokens)
                                  : sampled(prompt, tokens, static_cast<std::uint64_t>(i)));
    requests.back().spec.depth = i % 5 == 0 ? std::nullopt : std::optional<Index>(i % 5);
    requests.back().logprobs = 1;
  }
  Sinks alone;
  ReplayDrafts replay(0.7);
  for (const Request& request : requests) {
    alone.push_back(run_request(*plain_, request));
    replay.add(request.tokens, alone.back()->tokens);
  }
  const auto expect_same = [&](Engine& engine, const std::string& what) {
    for (int round = 0; round < 2; ++round) {
      const Sinks sinks = submit_all(engine, requests);
      finish(engine, sinks);
      for (std::size_t i = 0; i < sinks.size(); ++i) {
        expect_equal(*sinks[i], *alone[i], concat(what, ", round ", round, ", request ", i));
      }
    }
    EXPECT_GT(engine.stats().accepted, 30) << what;
  };
  const Index block = plain_->info().kv_bytes_per_token * 32;
  for (const Index sequences : {3, 17}) {
    const EngineOptions options{.context = 320, .max_sequences = sequences};
    expect_same(*open({.ngram = true}, options), "n-grams");
    expect_same(*open({.model = model_}, options), "the model itself");
    expect_same(*open({.function = replay}, options), "a replay");
    // Room for a few texts in the cache of the draft model.
    expect_same(*open({.model = model_, .kv_bytes = 9 * block}, options), "a small draft cache");
  }
}

// As many blocks as in together_test.cc, so that texts lose theirs and are computed again.
TEST_F(Speculation, a_cache_that_preempts_changes_no_text) {
  std::vector<Request> requests;
  Sinks alone;
  ReplayDrafts replay(0.8);
  for (const TokenId first : {403, 407, 410, 420, 430, 440}) {
    requests.push_back(with_depth(greedy({1, first}, 150), 4));
    alone.push_back(run_request(*plain_, requests.back()));
    replay.add(requests.back().tokens, alone.back()->tokens);
  }
  for (const Index blocks : {6, 9, 12}) {
    for (const bool is_model : {true, false}) {
      const DraftOptions draft =
          is_model ? DraftOptions{.model = model_} : DraftOptions{.function = replay};
      const auto engine = open(draft, {.context = 160, .kv_bytes = blocks * 32 * 640});
      const Sinks sinks = submit_all(*engine, requests);
      finish(*engine, sinks);
      for (std::size_t i = 0; i < sinks.size(); ++i) {
        expect_equal(*sinks[i], *alone[i], concat(blocks, " blocks, request ", i));
      }
      EXPECT_GT(engine->stats().preemptions, 0) << blocks << " blocks";
      EXPECT_GT(engine->stats().accepted, 300);
    }
  }
}

TEST_F(Speculation, stops_penalties_and_least_lengths_apply_token_by_token) {
  std::vector<Request> requests;
  for (const Index depth : {1, 3, 8}) {
    Request request = sampled(repetitive(), 60, 11);
    request.spec.depth = depth;
    request.logprobs = 3;
    request.sampling.repetition_penalty = 1.2f;
    request.sampling.frequency_penalty = 0.3f;
    requests.push_back(request);
    request = greedy(encode("Once upon a time"), 80);
    request.spec.depth = depth;
    request.stop = {"big, red ball", "park"};
    requests.push_back(request);
    request = greedy(encode("Once upon a time"), 300);
    request.spec.depth = depth;
    request.ignore_eos = false;
    request.min_tokens = 250;
    requests.push_back(request);
    request = sampled(repetitive(), 50, 3);
    request.spec.depth = depth;
    request.sampling.logit_bias = {{.id = 403, .bias = 3}};
    request.sampling.top_k = 10;
    requests.push_back(request);
  }
  Sinks want;
  ReplayDrafts replay(0.8);
  for (const Request& request : requests) {
    want.push_back(run_request(*plain_, request));
    replay.add(request.tokens, want.back()->tokens);
  }
  const auto expect_same = [&](const std::unique_ptr<Engine>& engine, const std::string& what) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      expect_equal(*run_request(*engine, requests[i]), *want[i], concat(what, ", request ", i));
    }
    EXPECT_GT(engine->stats().accepted, 100) << what;
  };
  expect_same(open({.function = replay}), "a replay");
  expect_same(open({.ngram = true}), "n-grams");
  const auto itself = open({.model = model_});
  expect_same(itself, "the model itself");
  // Drafts are drawn by the whole chain, so that those of the model itself are right.
  EXPECT_EQ(itself->stats().accepted, itself->stats().examined);
}

TEST_F(Speculation, schemas_hold_within_rounds) {
  Request request = sampled(encode("Tim wrote a card:"), 200, 0);
  request.ignore_eos = false;
  request.json_schema = R"({"type":"object","properties":{"name":{"type":"string","maxLength":20},
      "age":{"type":"integer","minimum":1,"maximum":120},"pets":{"type":"array","maxItems":3,
      "items":{"enum":["cat","dog"]}}},"required":["name","age","pets"],
      "additionalProperties":false})";
  const auto itself = open({.model = model_}), ngram = open({.ngram = true});
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    request.sampling.seed = seed;
    request.spec = {.depth = static_cast<Index>(1 + seed % 8)};
    const auto want = run_request(*plain_, request);
    expect_equal(*run_request(*itself, request), *want, concat("the model itself, seed ", seed));
    expect_equal(*run_request(*ngram, request), *want, concat("n-grams, seed ", seed));
    request.spec.rule = SpecRule::Exact;
    const auto exact = run_request(*itself, request);
    ASSERT_EQ(exact->last().finished, FinishReason::Stop);
    const Json card = parse_json(exact->text, "output");
    EXPECT_TRUE(card.at("age") >= 1 && card.at("age") <= 120) << exact->text;
  }
  EXPECT_EQ(itself->stats().accepted, itself->stats().examined);
  EXPECT_GT(itself->stats().accepted, 500);
}

TEST_F(Speculation, a_request_cancelled_inside_a_round_gets_no_more_tokens) {
  const Tokens prompt = encode("Once upon a time");
  const auto want = run_request(*plain_, greedy(prompt, 60));
  ReplayDrafts replay;
  replay.add(prompt, want->tokens);
  const auto engine = open({.function = replay});
  for (Index at = 1; at <= 20; ++at) {
    RequestId id = 0;
    Index arrived = 0;
    const auto sink = std::make_shared<infer::CollectSink>([&](const Event&) {
      if (++arrived == at) engine->cancel(id);
      return true;
    });
    const auto other = std::make_shared<CollectSink>();
    id = engine->submit(with_depth(greedy(prompt, 60), 8), sink);
    engine->submit(with_depth(greedy(prompt, 60), 8), other);
    while (!other->is_finished()) engine->step();
    ASSERT_EQ(std::ssize(sink->events), at + 1);
    EXPECT_EQ(sink->events.back().finished, FinishReason::Cancelled);
    EXPECT_EQ(sink->events.back().timings.generated_tokens, at);
    EXPECT_EQ(other->tokens, want->tokens);
  }
  while (engine->step()) {
  }
  EXPECT_EQ(engine->stats().cancelled, 20);
}

TEST_F(Speculation, a_slow_reader_gets_its_whole_text) {
  const Tokens prompt = encode("Once upon a time");
  const auto want = run_request(*plain_, greedy(prompt, 60));
  ReplayDrafts replay;
  replay.add(prompt, want->tokens);
  const auto engine = open({.function = replay});
  const auto sink = std::make_shared<CollectSink>();
  engine->submit(with_depth(greedy(prompt, 60), 6), sink);
  for (int step = 0; !sink->is_finished(); ++step) {
    if (step % 8 == 0) sink->refuse_next(3);
    engine->step();
  }
  expect_equal(*sink, *want, "a slow reader");
}

TEST_F(Speculation, a_source_that_fails_ends_its_request_alone) {
  const Tokens bad = encode("The cat"), good = encode("Once upon a time");
  const auto function = [&](std::span<const TokenId> text, Index) -> Tokens {
    if (std::equal(bad.begin(), bad.end(), text.begin())) throw std::runtime_error("no draft");
    return {-1, 512};  // no tokens, which are left out
  };
  const auto engine = open({.function = function});
  const Sinks sinks =
      submit_all(*engine, {with_depth(greedy(bad, 20), 2), with_depth(greedy(good, 20), 2)});
  finish(*engine, sinks);
  EXPECT_EQ(sinks[0]->last().finished, FinishReason::Failed);
  EXPECT_EQ(sinks[0]->last().error, "no draft");
  EXPECT_EQ(sinks[1]->tokens, run_request(*plain_, greedy(good, 20))->tokens);
  EXPECT_FALSE(engine->step());
  EXPECT_EQ(engine->stats().failed, 1);
}

TEST_F(Speculation, without_a_source_or_with_depth_zero_nothing_is_drafted) {
  const auto engine = open({.ngram = true});
  const auto none = run_request(*engine, with_depth(greedy(repetitive(), 30), 0));
  EXPECT_EQ(engine->stats().drafted, 0);
  ASSERT_NE(none->last().spec, nullptr);
  EXPECT_EQ(none->last().spec->rounds, 0);
  EXPECT_EQ(run_request(*plain_, with_depth(greedy(repetitive(), 30), 4))->last().spec, nullptr);
}

TEST_F(Speculation, drafts_that_fail_end_by_themselves_and_good_ones_get_longer) {
  const Tokens prompt = encode("Once upon a time");
  const auto want = run_request(*plain_, greedy(prompt, 250));
  for (const double right : {0.0, 1.0}) {
    hone::test::ScriptedClock clock;
    double step_seconds = 0;  // a millisecond, and 20 µs for each draft
    ReplayDrafts replay(right);
    replay.add(prompt, want->tokens);
    const auto timed = [&](std::span<const TokenId> text, Index count) {
      step_seconds += 2e-5 * static_cast<double>(count);
      return replay(text, count);
    };
    const auto engine = open({.function = timed}, {.clock = &clock});
    // Time passes once a step, when it delivers its first event.
    const auto sink = std::make_shared<infer::CollectSink>([&](const Event&) {
      clock.advance(std::exchange(step_seconds, 0));
      return true;
    });
    engine->submit(greedy(prompt, 250), sink);
    while (!sink->is_finished()) {
      step_seconds = 1e-3;
      engine->step();
    }
    const SpecStats& spec = *sink->events.back().spec;
    ASSERT_EQ(sink->events.size(), 250u);
    if (right == 0) {
      EXPECT_LT(spec.drafted, 100);
    } else {
      EXPECT_EQ(spec.accepted, spec.drafted);
      EXPECT_GT(spec.accepted_at[12], 3);
    }
  }
}

}  // namespace
}  // namespace hone::infer
