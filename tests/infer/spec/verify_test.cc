// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/spec/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "hone/core/error.h"
#include "hone/infer/sample/sampler.h"
#include "hone/infer/spec/ngram_index.h"
#include "tests/infer/spec/speculation_support.h"

namespace hone::infer {
namespace {

using test::Distribution;
using Tokens = std::vector<TokenId>;

const auto kHalf = [](Index, VerifyDraw) { return 0.5; };

TEST(VerifyDrafts, rejects_sizes_ids_and_probabilities_that_make_no_sense) {
  const Distribution two = {0.5, 0.5, 0.5, 0.5}, one = {0.5, 0.5};
  const Tokens draft = {0};
  EXPECT_NO_THROW(verify_drafts(two, one, draft, kHalf));
  EXPECT_THROW(verify_drafts(one, {}, draft, kHalf), Error);
  EXPECT_THROW(verify_drafts(two, two, draft, kHalf), Error);
  EXPECT_THROW(verify_drafts({}, {}, {}, kHalf), Error);
  EXPECT_THROW(verify_drafts(Distribution(5, 0.2), one, draft, kHalf), Error);
  EXPECT_THROW(verify_drafts(two, one, Tokens{2}, kHalf), Error);
  EXPECT_THROW(verify_drafts(two, one, Tokens{-1}, kHalf), Error);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(verify_drafts(Distribution{nan, 0.5, 0.5, 0.5}, one, draft, kHalf), Error);
  EXPECT_THROW(verify_drafts(Distribution{-0.1, 1.1, 0.5, 0.5}, one, draft, kHalf), Error);
  EXPECT_THROW(verify_drafts(Distribution{0.5, 0.5, 0, 0}, one, draft, kHalf), Error);
}

TEST(VerifyDrafts, a_rejection_by_rounding_emits_the_draft_but_never_a_forbidden_token) {
  const auto reject = [](Index, VerifyDraw draw) { return draw == VerifyDraw::Accept ? 1 : 0.5; };
  const Distribution equal = {0.25, 0.75, 0.5, 0.5}, draft = {0.25, 0.75};
  EXPECT_EQ(verify_drafts(equal, draft, Tokens{1}, reject).tokens.front(), 1);
  EXPECT_EQ(verify_drafts(equal, draft, Tokens{0}, reject).tokens.front(), 0);
  const Distribution masked = {0, 1, 0.5, 0.5}, nearly = {1e-17, 1};
  EXPECT_EQ(verify_drafts(masked, nearly, Tokens{0}, reject).tokens, (Tokens{1}));
}

TEST(VerifyByChoice, goes_on_while_the_choice_is_the_draft) {
  const Tokens text = {5, 6, 7, 8};
  const auto choose = [&](Index i) { return text[static_cast<std::size_t>(i)]; };
  const VerifiedRun all = verify_by_choice(Tokens{5, 6, 7}, choose);
  EXPECT_EQ(all.tokens, text);
  EXPECT_EQ(all.accepted, 3);
  EXPECT_EQ(all.examined, 3);
  const VerifiedRun first = verify_by_choice(Tokens{9, 6, 7}, choose);
  EXPECT_EQ(first.tokens, (Tokens{5}));
  EXPECT_EQ(first.accepted, 0);
  EXPECT_EQ(first.examined, 1);
  const VerifiedRun none = verify_by_choice({}, choose);
  EXPECT_EQ(none.tokens, (Tokens{5}));
  EXPECT_EQ(none.examined, 0);
}

TEST(VerifyByChoice, ends_with_the_text) {
  const Tokens drafts = {5, 6, 7};
  const VerifiedRun run = verify_by_choice(drafts, [&](Index i) -> ChosenToken {
    return {drafts[static_cast<std::size_t>(i)], i == 1};
  });
  EXPECT_EQ(run.tokens, (Tokens{5, 6}));
  EXPECT_EQ(run.accepted, 2);
  EXPECT_EQ(run.examined, 2);
}

TEST(PositionUniforms, of_drafts_differ_by_round_and_place_and_from_those_of_verification) {
  const PositionUniforms first({.seed = 1}, 100), second({.seed = 1}, 101);
  std::set<double> values;
  for (Index i = 0; i < 16; ++i) {
    for (const PositionUniforms& round : {first, second}) {
      values.insert(round(i, VerifyDraw::Draft));
    }
    for (const VerifyDraw draw : {VerifyDraw::Accept, VerifyDraw::Emit}) {
      values.insert(first(i, draw));
    }
  }
  EXPECT_EQ(values.size(), 64u);
}

TEST(PositionUniforms, differ_by_position_draw_seed_and_choice_and_not_by_the_round) {
  std::set<double> values;
  for (const std::uint64_t seed : {1, 2}) {
    for (const std::uint32_t choice : {0, 1}) {
      const SamplingParams sampling{.seed = seed, .choice = choice};
      for (Index i = 0; i < 20; ++i) {
        for (const VerifyDraw draw : {VerifyDraw::Accept, VerifyDraw::Emit}) {
          const double u = PositionUniforms(sampling, 100)(i, draw);
          EXPECT_EQ(u, PositionUniforms(sampling, 100 + i)(0, draw));
          EXPECT_GT(u, 0);
          EXPECT_LT(u, 1);
          values.insert(u);
        }
      }
    }
  }
  EXPECT_EQ(values.size(), 160u);
}

// Two models whose logits depend on the last token, so that texts repeat themselves; the draft's
// are the target's with noise.
class ToyModels {
 public:
  static constexpr std::size_t kVocab = 40;

  std::vector<float> target(std::span<const TokenId> prefix) const { return make(prefix, 0); }
  std::vector<float> draft(std::span<const TokenId> prefix) const {
    auto logits = make(prefix, 0);
    const auto noise = make(prefix, 1);
    for (std::size_t i = 0; i < kVocab; ++i) logits[i] += 0.3f * noise[i];
    return logits;
  }

 private:
  static std::vector<float> make(std::span<const TokenId> prefix, std::uint64_t which) {
    PhiloxStream random(5, 2 * static_cast<std::uint64_t>(prefix.back()) + which);
    std::vector<float> logits(kVocab);
    for (float& logit : logits) logit = 6 * random.uniform() - 3;
    return logits;
  }
};

class CoupledText : public testing::Test {
 protected:
  Tokens plain(const SamplingParams& sampling) const {
    Tokens text = prompt;
    Sampler sampler(sampling, prompt);
    while (text.size() < kLength) {
      auto logits = models.target(text);
      text.push_back(sampler.choose(logits, static_cast<Index>(text.size()), {}));
    }
    return text;
  }

  // Rounds of k drafts that share the noise of the target; adds to the sums below.
  Tokens speculated(const SamplingParams& sampling, std::size_t k) {
    Tokens text = prompt;
    Sampler target(sampling, prompt), draft(sampling, prompt);
    while (text.size() < kLength) {
      const auto first = static_cast<Index>(text.size());
      Tokens path = text, drafts;
      for (std::size_t i = 0; i < k; ++i) {
        auto logits = models.draft(path);
        drafts.push_back(draft.choose(logits, first + static_cast<Index>(i), {}));
        path.push_back(drafts.back());
      }
      const VerifiedRun run = verify_by_choice(drafts, [&](Index i) {
        const std::span<const TokenId> prefix(path.data(), static_cast<std::size_t>(first + i));
        auto logits = models.target(prefix);
        if (i < static_cast<Index>(k)) add_bound(target, draft, prefix);
        return target.choose(logits, first + i, {});
      });
      text.insert(text.end(), run.tokens.begin(), run.tokens.end());
      draft.history().truncate_output(first - static_cast<Index>(prompt.size()));
      for (const TokenId id : run.tokens) draft.history().add_output(id);
      accepted += static_cast<double>(run.accepted);
    }
    text.resize(kLength);
    return text;
  }

  // (1 - TV) / (1 + TV) of the two distributions at this place.
  void add_bound(const Sampler& target, const Sampler& draft, std::span<const TokenId> prefix) {
    Sampler p_sampler = target, q_sampler = draft;
    const Index before = static_cast<Index>(prefix.size()) - static_cast<Index>(prompt.size());
    q_sampler.history().truncate_output(before);
    auto p_logits = models.target(prefix), q_logits = models.draft(prefix);
    Distribution p(ToyModels::kVocab), q(ToyModels::kVocab);
    p_sampler.write_distribution(p_logits, {}, p);
    q_sampler.write_distribution(q_logits, {}, q);
    double common = 0;
    for (std::size_t y = 0; y < p.size(); ++y) common += std::min(p[y], q[y]);
    bound += common / (2 - common);
    ++examined;
  }

  // Rounds whose drafts the text itself proposes.
  Tokens looked_up(const SamplingParams& sampling, Index k) {
    NgramIndex index(prompt);
    Tokens text = prompt;
    Sampler sampler(sampling, prompt);
    while (text.size() < kLength) {
      const Tokens drafts = index.propose(k);
      const VerifiedRun run = verify_by_choice(drafts, [&](Index) {
        auto logits = models.target(text);
        text.push_back(sampler.choose(logits, static_cast<Index>(text.size()), {}));
        return text.back();
      });
      index.append(run.tokens);
      accepted += static_cast<double>(run.accepted);
    }
    text.resize(kLength);
    return text;
  }

  static constexpr std::size_t kLength = 120;
  const Tokens prompt = {3, 1, 4};
  ToyModels models;
  double accepted = 0, bound = 0, examined = 0;
};

TEST_F(CoupledText, is_that_of_the_plain_run_for_every_seed_and_chain) {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    for (SamplingParams sampling :
         {SamplingParams{}, SamplingParams{.temperature = 0},
          SamplingParams{.temperature = 0.7f, .top_k = 12, .top_p = 0.9f, .min_p = 0.02f},
          SamplingParams{
              .repetition_penalty = 1.3f, .presence_penalty = 0.4f, .frequency_penalty = 0.2f}}) {
      sampling.seed = seed;
      const std::size_t k = 1 + seed % 5;
      EXPECT_EQ(speculated(sampling, k), plain(sampling)) << seed << " " << k;
    }
  }
}

TEST_F(CoupledText, of_ngram_drafts_is_that_of_the_plain_run_for_every_seed) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const SamplingParams sampling{.temperature = 0.8f, .top_k = 3, .seed = seed};
    EXPECT_EQ(looked_up(sampling, 1 + static_cast<Index>(seed % 8)), plain(sampling)) << seed;
  }
  EXPECT_GT(accepted, 1000);
}

TEST_F(CoupledText, drafts_are_accepted_at_least_as_often_as_the_theorem_says) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) speculated({.seed = seed}, 3);
  ASSERT_GT(examined, 5000);
  const double sigma = 0.5 / std::sqrt(examined);
  EXPECT_GE(accepted / examined, bound / examined - 4 * sigma);
  EXPECT_LT(accepted / examined, 1);
}

}  // namespace
}  // namespace hone::infer
