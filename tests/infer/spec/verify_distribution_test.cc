// SPDX-License-Identifier: Apache-2.0
// The distribution of verify_drafts(): by enumeration, with the uniform numbers integrated
// analytically, and by draws.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "hone/infer/sample/sampler.h"
#include "hone/infer/spec/verify.h"
#include "tests/infer/spec/speculation_support.h"
#include "tests/support/largest_error.h"

namespace hone::infer {
namespace {

using test::append;
using test::Distribution;
using test::DistributionPair;
using test::draw_from;
using test::Pair;
using test::RoundDistributions;

using Tokens = std::vector<TokenId>;

// The exact distribution of the run of one round: which runs it emits with which probability.
class RunDistribution {
 public:
  RunDistribution(const DistributionPair& pair, std::size_t k) : pair_(pair) {
    Tokens drafts;
    visit_drafts(drafts, k, 1);
  }
  const std::map<Tokens, double>& runs() const { return runs_; }

 private:
  void visit_drafts(Tokens& drafts, std::size_t k, double probability) {
    if (probability == 0) return;
    if (drafts.size() == k) return visit_rejections(drafts, probability);
    const Distribution q = pair_.draft(drafts);
    for (std::size_t x = 0; x < q.size(); ++x) {
      drafts.push_back(static_cast<TokenId>(x));
      visit_drafts(drafts, k, probability * q[x]);
      drafts.pop_back();
    }
  }

  // The place of the first rejection, k if there is none.
  void visit_rejections(const Tokens& drafts, double probability) {
    const RoundDistributions distributions(pair_, {}, drafts);
    const std::size_t vocab = pair_.vocab();
    double accepted = probability;  // drafts and acceptances up to here
    for (std::size_t i = 0; i < drafts.size(); ++i) {
      const auto x = static_cast<std::size_t>(drafts[i]);
      const double p = distributions.target[i * vocab + x], q = distributions.draft[i * vocab + x];
      const double border = std::min(1.0, p / q);
      borders_.push_back(border);
      if (border < 1) visit_tokens(distributions, drafts, i, accepted * (1 - border));
      accepted *= border;
    }
    visit_tokens(distributions, drafts, drafts.size(), accepted);
    borders_.clear();
  }

  // The token after the accepted drafts, each from the piece of (0, 1) that yields it.
  void visit_tokens(const RoundDistributions& distributions, const Tokens& drafts,
                    std::size_t rejected, double probability) {
    if (probability < 1e-18) return;  // rejected by rounding: equal distributions
    const std::size_t vocab = pair_.vocab();
    Distribution distribution(
        distributions.target.begin() + static_cast<Index>(rejected * vocab),
        distributions.target.begin() + static_cast<Index>((rejected + 1) * vocab));
    double total = 0;
    for (std::size_t y = 0; y < vocab; ++y) {
      if (rejected < drafts.size())
        distribution[y] =
            std::max(0.0, distribution[y] - distributions.draft[rejected * vocab + y]);
      total += distribution[y];
    }
    double begin = 0;
    for (std::size_t y = 0; y < vocab; ++y) {
      const double width = distribution[y] / total;
      if (width > 1e-12) {
        // Both ends of the piece, so that its borders are where this test puts them.
        const Tokens run = run_at(distributions, drafts, rejected, begin + width * 1e-6);
        EXPECT_EQ(run, run_at(distributions, drafts, rejected, begin + width * (1 - 1e-6)));
        EXPECT_EQ(run.back(), static_cast<TokenId>(y));
        runs_[run] += probability * width;
      }
      begin += width;
    }
  }

  // Accepts just below the border of each draft before `rejected`, rejects just above its own.
  Tokens run_at(const RoundDistributions& distributions, const Tokens& drafts, std::size_t rejected,
                double u) {
    const auto uniform = [&](Index i, VerifyDraw draw) {
      if (draw == VerifyDraw::Emit) return u;
      const double border = borders_[static_cast<std::size_t>(i)];
      return static_cast<std::size_t>(i) < rejected ? border * (1 - 1e-9)
                                                    : border + (1 - border) * 1e-6 + 1e-13;
    };
    const VerifiedRun run =
        verify_drafts(distributions.target, distributions.draft, drafts, uniform);
    EXPECT_EQ(run.accepted, static_cast<Index>(rejected));
    EXPECT_EQ(run.examined, std::min<Index>(run.accepted + 1, static_cast<Index>(drafts.size())));
    EXPECT_EQ(run.tokens.size(), rejected + 1);
    EXPECT_TRUE(std::equal(run.tokens.begin(), run.tokens.end() - 1, drafts.begin()));
    return run.tokens;
  }

  const DistributionPair& pair_;
  std::vector<double> borders_;
  std::map<Tokens, double> runs_;
};

// The largest difference between the probability of a text that starts with one round and goes on
// by the target's distribution, and the target's own probability of that text; over all texts up to
// `length`.
double largest_error(const DistributionPair& pair, const std::map<Tokens, double>& runs,
                     std::size_t length) {
  std::map<Tokens, double> passing;  // runs that start with a text and are longer
  for (const auto& [run, probability] : runs) {
    for (std::size_t n = 0; n < run.size(); ++n) {
      passing[Tokens(run.begin(), run.begin() + static_cast<Index>(n))] += probability;
    }
  }
  hone::test::LargestError worst;
  // ended: the probability that a run ended at or before `text` and the target wrote the rest.
  const std::function<void(Tokens&, double, double)> visit = [&](Tokens& text, double ended,
                                                                 double wanted) {
    const auto own = runs.find(text);
    if (own != runs.end()) ended += own->second;
    const auto longer = passing.find(text);
    const double got = ended + (longer == passing.end() ? 0 : longer->second);
    worst.add(got, wanted);
    if (text.size() == length) return;
    const Distribution p = pair.target(text);
    for (std::size_t y = 0; y < p.size(); ++y) {
      text.push_back(static_cast<TokenId>(y));
      visit(text, ended * p[y], wanted * p[y]);
      text.pop_back();
    }
  };
  Tokens text;
  visit(text, 0, 1);
  return worst.error;
}

Pair kind_of(std::uint64_t number) { return static_cast<Pair>(number % 4); }

TEST(VerifyDrafts, emits_the_distribution_of_the_target_exactly) {
  int rounds = 0;
  for (std::uint64_t number = 0; number < 50; ++number) {
    const std::size_t vocab = 3 + number % 6;
    const DistributionPair pair(number, vocab, kind_of(number / 6));
    std::size_t paths = 1;
    for (std::size_t k = 0; k <= 4 && paths <= 700; ++k, paths *= vocab) {
      const RunDistribution distribution(pair, k);
      EXPECT_LE(largest_error(pair, distribution.runs(), k + 1), 1e-12)
          << "pair " << number << ", k " << k;
      ++rounds;
    }
  }
  EXPECT_GE(rounds, 50 * 4);
}

TEST(VerifyDrafts, accepts_every_draft_of_an_equal_distribution_and_none_of_a_disjoint_one) {
  for (std::uint64_t number = 0; number < 20; ++number) {
    for (const Pair kind : {Pair::Equal, Pair::Disjoint}) {
      const DistributionPair pair(number, 5, kind);
      const Tokens drafts = {draw_from(pair.draft({}), 0.3)};
      const RoundDistributions distributions(pair, {}, drafts);
      const PositionUniforms uniform({.seed = number}, 0);
      const VerifiedRun run =
          verify_drafts(distributions.target, distributions.draft, drafts, uniform);
      EXPECT_EQ(run.accepted, kind == Pair::Equal ? 1 : 0);
    }
  }
}

using Rule = std::function<Tokens(const RoundDistributions&, const Tokens& drafts, PhiloxStream&)>;

Tokens exact_rule(const RoundDistributions& distributions, const Tokens& drafts,
                  PhiloxStream& random) {
  return verify_drafts(distributions.target, distributions.draft, drafts,
                       [&random](Index, VerifyDraw) { return random.uniform_double(); })
      .tokens;
}

// A known mistake: a draft is accepted with its probability under the target, and the target's own
// draw replaces the round only if nothing was accepted.
Tokens wrong_rule(const RoundDistributions& distributions, const Tokens& drafts,
                  PhiloxStream& random) {
  const std::size_t vocab = distributions.target.size() / (drafts.size() + 1);
  Tokens run;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    const auto x = static_cast<std::size_t>(drafts[i]);
    if (random.uniform_double() >= distributions.target[i * vocab + x]) break;
    run.push_back(drafts[i]);
  }
  if (run.empty()) {
    const Distribution first(distributions.target.begin(),
                             distributions.target.begin() + static_cast<Index>(vocab));
    run.push_back(draw_from(first, random.uniform_double()));
  }
  return run;
}

// Chi-square, divided by its limit at an error probability of 1e-6, of the joint distribution of
// the first `length` tokens that rounds of k drafts emit, over 200,000 texts.
double chi_square_share(const DistributionPair& pair, std::size_t k, std::size_t length,
                        const Rule& rule) {
  constexpr int kTexts = 200000;
  PhiloxStream random(9, 1);
  std::map<Tokens, int> counts;
  for (int n = 0; n < kTexts; ++n) {
    Tokens text;
    while (text.size() < length) {
      Tokens drafts, path = text;
      for (std::size_t i = 0; i < k; ++i) {
        drafts.push_back(draw_from(pair.draft(path), random.uniform_double()));
        path.push_back(drafts.back());
      }
      const Tokens run = rule(RoundDistributions(pair, text, drafts), drafts, random);
      text.insert(text.end(), run.begin(), run.end());
    }
    text.resize(length);
    ++counts[text];
  }
  double chi2 = 0, cells = 0;
  const std::function<void(Tokens&, double)> visit = [&](Tokens& text, double wanted) {
    if (text.size() == length) {
      const auto found = counts.find(text);
      const double got = found == counts.end() ? 0 : found->second;
      chi2 += (got - wanted) * (got - wanted) / wanted;
      ++cells;
      return;
    }
    const Distribution p = pair.target(text);
    for (std::size_t y = 0; y < p.size(); ++y) {
      text.push_back(static_cast<TokenId>(y));
      visit(text, wanted * p[y]);
      text.pop_back();
    }
  };
  Tokens text;
  visit(text, kTexts);
  return chi2 / test::chi_square_limit(cells - 1);
}

TEST(VerifyDrafts, draws_pass_a_test_that_the_wrong_rule_fails) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const DistributionPair pair(seed, 5, Pair::Random);
    for (const std::size_t k : {1, 3}) {
      EXPECT_LT(chi_square_share(pair, k, 1, exact_rule), 1) << seed << " " << k;
      EXPECT_GT(chi_square_share(pair, k, 1, wrong_rule), 1) << seed << " " << k;
    }
  }
}

TEST(VerifyDrafts, three_tokens_have_the_joint_distribution_across_rounds) {
  for (const std::size_t k : {1, 2, 4}) {
    EXPECT_LT(chi_square_share(DistributionPair(7, 4, Pair::Random), k, 3, exact_rule), 1) << k;
  }
  EXPECT_GT(chi_square_share(DistributionPair(7, 4, Pair::Random), 2, 3, wrong_rule), 1);
}

// Both models behind the whole chain, with penalties that depend on the drafts before: the joint
// distribution of three tokens is that of the target's Sampler, which is enumerated.
class SampledRounds : public testing::Test {
 protected:
  static constexpr std::size_t kVocab = 4, kLength = 3;

  std::vector<float> logits_of(std::size_t length, int model) const {
    PhiloxStream random(6, length * 2 + static_cast<std::size_t>(model));
    std::vector<float> logits(kVocab);
    for (float& logit : logits) logit = 3 * random.uniform();
    return logits;
  }
  Distribution distribution_of(Sampler& sampler, std::size_t length, int model) const {
    auto logits = logits_of(length, model);
    Distribution distribution(kVocab);
    sampler.write_distribution(logits, {}, distribution);
    return distribution;
  }

  Tokens speculate(std::uint64_t seed, std::size_t k) const {
    SamplingParams own = sampling;
    own.seed = seed;
    PhiloxStream draft_random(seed, 99);
    Tokens text;
    Sampler target(own, {}), draft(own, {});
    while (text.size() < kLength) {
      Tokens drafts;
      Distribution p, q;
      const auto before = static_cast<Index>(text.size());
      for (std::size_t i = 0; i < k; ++i) {
        append(p, distribution_of(target, text.size() + i, 0));
        const Distribution distribution = distribution_of(draft, text.size() + i, 1);
        append(q, distribution);
        drafts.push_back(draw_from(distribution, draft_random.uniform_double()));
        for (Sampler* sampler : {&target, &draft}) sampler->history().add_output(drafts.back());
      }
      append(p, distribution_of(target, text.size() + k, 0));
      const VerifiedRun run = verify_drafts(p, q, drafts, PositionUniforms(own, before));
      for (Sampler* sampler : {&target, &draft}) {
        sampler->history().truncate_output(before + run.accepted);
        sampler->history().add_output(run.tokens.back());
      }
      text.insert(text.end(), run.tokens.begin(), run.tokens.end());
    }
    text.resize(kLength);
    return text;
  }

  void enumerate(Tokens& text, double probability, std::map<Tokens, double>& distribution) const {
    if (text.size() == kLength) {
      distribution[text] = probability;
      return;
    }
    Sampler sampler(sampling, {});
    for (const TokenId id : text) sampler.history().add_output(id);
    const Distribution p = distribution_of(sampler, text.size(), 0);
    for (std::size_t y = 0; y < kVocab; ++y) {
      text.push_back(static_cast<TokenId>(y));
      enumerate(text, probability * p[y], distribution);
      text.pop_back();
    }
  }

  const SamplingParams sampling{.repetition_penalty = 1.4f,
                                .presence_penalty = 0.5f,
                                .frequency_penalty = 0.3f,
                                .temperature = 0.9f,
                                .top_k = 3};
};

TEST_F(SampledRounds, with_penalties_have_the_distribution_of_the_plain_sampler) {
  constexpr int kTexts = 50000;
  std::map<Tokens, double> distribution;
  Tokens text;
  enumerate(text, 1, distribution);
  for (const std::size_t k : {1, 2, 3}) {
    std::map<Tokens, int> counts;
    for (std::uint64_t seed = 0; seed < kTexts; ++seed) ++counts[speculate(seed, k)];
    double chi2 = 0, cells = 0;
    for (const auto& [tokens, probability] : distribution) {
      const double wanted = kTexts * probability, got = counts[tokens];
      if (wanted == 0) {
        EXPECT_EQ(got, 0);
        continue;
      }
      chi2 += (got - wanted) * (got - wanted) / wanted;
      ++cells;
    }
    EXPECT_LT(chi2, test::chi_square_limit(cells - 1)) << k;
    EXPECT_EQ(cells, 27);  // top-k keeps three of four tokens
  }
}

}  // namespace
}  // namespace hone::infer
