// SPDX-License-Identifier: Apache-2.0
// The faults of speculation that reference_faults_test.cc leaves to this file.
#include <gtest/gtest.h>

#include <cmath>

#include "hone/core/error.h"
#include "hone/infer/sample/sampler.h"
#include "tests/infer/spec/speculation_support.h"
#include "tests/infer/speculation_fixture.h"
#include "tests/support/error_of.h"

namespace hone::infer {
namespace {

using test::greedy;
using test::ReplayDrafts;
using test::run_request;
using test::with_depth;

using Tokens = std::vector<TokenId>;

// A model of few tokens, whose distributions are found by asking for the log probabilities of all
// tokens.
class SpeculatedDistribution : public test::SpeculationModels {
 protected:
  static constexpr Index kVocab = 6, kTokens = 3;

  void SetUp() override {
    model_io::Architecture a = hone::test::tiny_architecture();
    a.vocab_size = kVocab;
    a.stop_ids = {};
    target_ = write_model("target", a, 3);
    draft_ = write_model("draft", a, 4);
    sampling_.temperature = 3;
    sampling_.presence_penalty = 0.5f;
  }

  Request request(Tokens text, Index tokens, std::uint64_t seed) const {
    Request request;
    request.tokens = std::move(text);
    request.max_tokens = tokens;
    request.sampling = sampling_;
    request.sampling.seed = seed;
    request.ignore_eos = true;
    return request;
  }

  // The distribution of the next token after `output`, from the model's own log probabilities.
  std::vector<double> distribution(Engine& engine, const Tokens& output) const {
    Tokens text = prompt_;
    text.insert(text.end(), output.begin(), output.end());
    Request one = request(text, 1, 0);
    one.logprobs = kVocab;
    std::vector<float> logits(kVocab);
    const auto sink = run_request(engine, one);
    for (const TokenLogprob& entry : sink->events.front().top) {
      logits[static_cast<std::size_t>(entry.id)] = static_cast<float>(entry.logprob);
    }
    Sampler sampler(sampling_, prompt_);
    for (const TokenId id : output) sampler.history().add_output(id);
    std::vector<double> distribution(kVocab);
    sampler.write_distribution(logits, {}, distribution);
    return distribution;
  }

  // The probabilities of all outputs of kTokens tokens, in lexical order.
  std::vector<double> joint_distribution(Engine& engine) const {
    std::vector<double> joint{1};
    std::vector<Tokens> outputs{{}};
    for (Index length = 0; length < kTokens; ++length) {
      std::vector<double> longer;
      std::vector<Tokens> next;
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const auto after = distribution(engine, outputs[i]);
        for (TokenId id = 0; id < kVocab; ++id) {
          longer.push_back(joint[i] * after[static_cast<std::size_t>(id)]);
          next.push_back(outputs[i]);
          next.back().push_back(id);
        }
      }
      joint = std::move(longer);
      outputs = std::move(next);
    }
    return joint;
  }

  static std::size_t cell_of(const Tokens& output) {
    std::size_t cell = 0;
    for (const TokenId id : output) cell = cell * kVocab + static_cast<std::size_t>(id);
    return cell;
  }

  // Chi-square of counts against a distribution over its limit, cells of less than 5 being merged.
  static double excess(const std::vector<Index>& counts, const std::vector<double>& distribution) {
    Index total = 0;
    for (const Index count : counts) total += count;
    double sum = 0, cells = 0, rare = 0, rare_count = 0;
    const auto add = [&](double expected, double count) {
      sum += (count - expected) * (count - expected) / expected;
      ++cells;
    };
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const double expected = distribution[i] * static_cast<double>(total);
      if (expected >= 5) {
        add(expected, static_cast<double>(counts[i]));
      } else {
        rare += expected;
        rare_count += static_cast<double>(counts[i]);
      }
    }
    if (rare > 0) add(rare, rare_count);
    return sum / test::chi_square_limit(cells - 1);
  }

  std::vector<Index> sampled(Engine& engine, SpecRule rule, std::optional<Index> depth) const {
    std::vector<Index> counts(static_cast<std::size_t>(std::pow(kVocab, kTokens)));
    for (std::uint64_t seed = 0; seed < 6000; ++seed) {
      const auto got =
          run_request(engine, with_depth(request(prompt_, kTokens, seed), depth, rule));
      ++counts[cell_of(got->tokens)];
    }
    return counts;
  }

  std::filesystem::path target_, draft_;
  SamplingParams sampling_;
  Tokens prompt_{1, 2, 1, 2, 1};
};

TEST_F(SpeculatedDistribution, f12_is_that_of_the_model_whatever_drafts_are_verified) {
  const auto joint = joint_distribution(*open(target_));
  const auto expect_distribution = [&](Engine& engine, SpecRule rule, const std::string& what) {
    EXPECT_LT(excess(sampled(engine, rule, 2), joint), 1) << what;
    EXPECT_GT(engine.stats().accepted, 100) << what;
    EXPECT_GT(engine.stats().examined, engine.stats().accepted) << what;
  };
  const auto with_model = open(target_, {.draft = {.model = draft_}});
  expect_distribution(*with_model, SpecRule::Exact, "a draft model, exact rule");
  expect_distribution(*with_model, SpecRule::Coupled, "a draft model, coupled rule");
  expect_distribution(*open(target_, {.draft = {.ngram = true}}), SpecRule::Exact, "n-grams");
  const auto constant = [](std::span<const TokenId>, Index count) {
    return Tokens(static_cast<std::size_t>(count), 3);
  };
  expect_distribution(*open(target_, {.draft = {.function = constant}}), SpecRule::Exact,
                      "a constant");
}

// The rule of the reference: a draft is accepted with its probability by the model, and otherwise
// replaced by a token of the model's distribution.
TEST_F(SpeculatedDistribution, f12_a_test_of_the_distribution_rejects_the_rule_of_the_reference) {
  const auto target = open(target_), draft = open(draft_);
  const auto p = distribution(*target, {}), q = distribution(*draft, {});
  PhiloxStream random(5);
  std::vector<Index> counts(kVocab);
  for (int draws = 0; draws < 6000; ++draws) {
    TokenId id = draw_from_distribution(q, random.uniform_double());
    if (random.uniform_double() >= p[static_cast<std::size_t>(id)]) {
      id = draw_from_distribution(p, random.uniform_double());
    }
    ++counts[static_cast<std::size_t>(id)];
  }
  EXPECT_GT(excess(counts, p), 1);
}

TEST_F(SpeculatedDistribution, exact_drafts_of_the_model_itself_are_all_accepted) {
  const auto engine = open(target_, {.draft = {.model = target_}});
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    run_request(*engine, with_depth(request(prompt_, 20, seed), 4, SpecRule::Exact));
  }
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.accepted, stats.examined);
  EXPECT_EQ(stats.examined, stats.drafted);
}

TEST_F(SpeculatedDistribution, the_exact_rule_gives_each_seed_one_text) {
  const auto engine = open(target_, {.draft = {.model = draft_}});
  std::vector<Tokens> texts[2];
  for (std::vector<Tokens>& round : texts) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const auto text = with_depth(request(prompt_, 20, seed), 3, SpecRule::Exact);
      round.push_back(run_request(*engine, text)->tokens);
    }
  }
  EXPECT_EQ(texts[0], texts[1]);
}

class SpeculationFault : public test::SpeculationModels {
 protected:
  void SetUp() override {
    architecture_ = hone::test::tiny_architecture();
    model_ = write_model("model", architecture_, 1);
    tokens_ = greedy_tokens(model_, prompt_, 40);
    replay_.add(prompt_, tokens_);
  }

  model_io::Architecture architecture_;
  std::filesystem::path model_;
  Tokens prompt_{1, 5, 9}, tokens_;
  ReplayDrafts replay_;
};

TEST_F(SpeculationFault, f13_a_round_emits_a_token_at_least_and_one_more_than_its_drafts_at_most) {
  const auto right = open(model_, {.draft = {.function = replay_}});
  const auto got = run_request(*right, with_depth(greedy(prompt_, 37), 8));
  ASSERT_EQ(got->tokens, Tokens(tokens_.begin(), tokens_.begin() + 37));
  const SpecStats& all = *got->last().spec;
  EXPECT_EQ(all.rounds, 4);  // the first token is the prompt's: 36 = 4 * (8 + 1)
  EXPECT_EQ(all.emitted, 36);
  EXPECT_EQ(all.accepted, 32);

  const auto wrong = [this](std::span<const TokenId> text, Index count) {
    return Tokens(static_cast<std::size_t>(count), replay_(text, 1).front() ^ 1);
  };
  const auto engine = open(model_, {.draft = {.function = wrong}});
  const auto none = run_request(*engine, with_depth(greedy(prompt_, 30), 4));
  ASSERT_EQ(none->tokens, Tokens(tokens_.begin(), tokens_.begin() + 30));
  EXPECT_EQ(none->last().spec->rounds, none->last().spec->emitted);
  EXPECT_EQ(none->last().spec->accepted, 0);
}

TEST_F(SpeculationFault, f14_a_round_computes_its_drafts_and_one_token_and_no_text_again) {
  for (const bool is_good : {true, false}) {
    const auto draft = write_model("draft", architecture_, is_good ? 1 : 2);
    const auto engine = open(model_, {.draft = {.model = draft}});
    const Index k = 4;
    const auto got = run_request(*engine, with_depth(greedy(prompt_, 40), k));
    const EngineStats stats = engine->stats();
    const auto prompt = std::ssize(prompt_);
    const Index rounds = stats.spec_rounds;
    ASSERT_GT(rounds, 5);
    EXPECT_EQ(got->last().spec->accepted > 0, is_good);
    EXPECT_LE(stats.rows, prompt + rounds * (k + 1) + 1);  // the last token has no drafts
    EXPECT_LE(stats.draft_rows, prompt + rounds * (k + 1));
  }
}

TEST_F(SpeculationFault, f15_a_stop_token_inside_an_accepted_run_ends_the_text) {
  for (std::size_t place = 1; place < tokens_.size(); ++place) {
    const TokenId stop = tokens_[place];
    const auto first = std::ranges::find(tokens_, stop) + 1;
    architecture_.stop_ids = {stop};
    const auto engine =
        open(write_model("stops", architecture_, 1), {.draft = {.function = replay_}});
    Request request = with_depth(greedy(prompt_, 40), 8);
    request.ignore_eos = false;
    const auto got = run_request(*engine, request);
    EXPECT_EQ(got->tokens, Tokens(tokens_.begin(), first)) << "stop token at " << place;
    EXPECT_EQ(got->last().finished, FinishReason::Stop);
  }
}

TEST_F(SpeculationFault, f15_no_depth_gives_more_tokens_than_were_asked_for) {
  const auto engine = open(model_, {.draft = {.function = replay_}});
  for (Index depth = 1; depth <= 8; ++depth) {
    for (Index tokens = 1; tokens <= 20; ++tokens) {
      const auto got = run_request(*engine, with_depth(greedy(prompt_, tokens), depth));
      ASSERT_EQ(got->tokens, Tokens(tokens_.begin(), tokens_.begin() + tokens)) << depth;
      EXPECT_EQ(got->last().finished, FinishReason::Length);
    }
  }
}

TEST_F(SpeculationFault, f16_drafts_after_a_rejection_are_not_counted_as_examined) {
  const auto first_right = [this](std::span<const TokenId> text, Index count) {
    Tokens drafts = replay_(text, count);
    for (std::size_t i = 1; i < drafts.size(); ++i) drafts[i] ^= 1;
    return drafts;
  };
  const auto engine = open(model_, {.draft = {.function = first_right}});
  const auto got = run_request(*engine, with_depth(greedy(prompt_, 31), 4));
  const SpecStats& spec = *got->last().spec;
  EXPECT_EQ(spec.rounds, 15);
  EXPECT_EQ(spec.accepted, 15);
  EXPECT_EQ(spec.examined - spec.examined_at[1], 15);
  EXPECT_EQ(spec.accepted_at[0], 15);
  EXPECT_EQ(spec.accepted_at[1], 0);
  EXPECT_EQ(spec.examined_at[2], 0);
  EXPECT_GT(spec.drafted, spec.examined + 15);
}

TEST_F(SpeculationFault, a_draft_model_of_another_vocabulary_is_refused) {
  architecture_.vocab_size = 40;
  const auto other = write_model("other", architecture_, 1);
  EXPECT_EQ(hone::test::error_of([&] { open(model_, {.draft = {.model = other}}); }),
            "[draft model] expected the model's vocabulary of 48 tokens, got 40");
}

// As GGUF files of two sizes of one family have them.
TEST_F(SpeculationFault, padding_tokens_of_a_draft_model_may_be_fewer_or_more) {
  const auto tokenizer = text::make_tokenizer(hone::test::tiny_sentencepiece(44));
  const auto write = [&](const char* name, Index rows) {
    model_io::Architecture a = architecture_;
    a.vocab_size = rows;
    const auto path = folder_.path() / name;
    model_io::write_gguf(path, hone::test::TinyModel(a).source(tokenizer.get()));
    return path;
  };
  const auto target = write("target.gguf", 48);
  for (const Index rows : {46, 48, 56}) {
    const auto engine = open(target, {.draft = {.model = write("draft.gguf", rows)}});
    EXPECT_EQ(run_request(*engine, with_depth(greedy(prompt_, 9), 4))->tokens.size(), 9u) << rows;
  }
}

TEST_F(SpeculationFault, options_that_contradict_each_other_are_refused) {
  EXPECT_THROW(open(model_, {.draft = {.ngram = true, .function = replay_}}), Error);
  EXPECT_THROW(open(model_, {.draft = {.ngram = true, .kv_bytes = -1}}), Error);
  const auto engine = open(model_, {.draft = {.ngram = true}});
  for (const Index depth : {-1, 17}) {
    EXPECT_THROW(run_request(*engine, with_depth(greedy(prompt_, 5), depth)), Error);
  }
}

}  // namespace
}  // namespace hone::infer
