// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/spec/draft_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "hone/core/philox.h"
#include "hone/infer/spec/ngram_index.h"
#include "tests/support/scripted_clock.h"

namespace hone::infer {
namespace {

constexpr Index kLong = 20'000, kIndexed = 8192;

// Tokens 0, 1, … of which each occurs once, and then `end`.
std::vector<TokenId> rising_then(Index size, const std::vector<TokenId>& end) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(size - std::ssize(end)));
  std::iota(tokens.begin(), tokens.end(), 0);
  tokens.insert(tokens.end(), end.begin(), end.end());
  return tokens;
}

class NgramDraftsTest : public testing::Test {
 protected:
  static std::unique_ptr<Sequence> sequence(RequestId id, std::vector<TokenId> prompt) {
    QueuedRequest queued{.id = id};
    queued.request.tokens = std::move(prompt);
    queued.request.sampling.temperature = 0;
    queued.request.max_tokens = 1000;
    queued.cancelled = std::make_shared<std::atomic<bool>>(false);
    return std::make_unique<Sequence>(std::move(queued), nullptr, std::vector<TokenId>{},
                                      2 * kLong);
  }
  void append(Sequence& sequence, TokenId id) {
    std::vector<float> logits(kLong, 0.0f);
    logits[static_cast<std::size_t>(id)] = 9;
    ASSERT_EQ(sequence.accept(logits, clock_).token, id);
  }
  std::vector<TokenId> drafts_of(Sequence& sequence, Index count = 3) {
    DraftJob job{.id = sequence.id(), .sequence = &sequence, .count = count};
    drafts_->propose(std::span(&job, 1));
    return job.drafts;
  }

  std::unique_ptr<DraftSource> drafts_ = make_ngram_drafts();
  hone::test::ScriptedClock clock_;
};

using Ids = std::vector<TokenId>;

TEST_F(NgramDraftsTest, come_from_the_last_8192_tokens_of_a_long_prompt) {
  struct Case {
    TokenId first;  // of the n-gram that the prompt ends with
    Ids drafts;
  };
  constexpr TokenId kBegin = kLong - kIndexed;  // the first token that is looked at
  const Case cases[] = {{10, {}},
                        {kBegin - 2, {}},
                        {kBegin - 1, {}},  // its first token lies before
                        {kBegin, {kBegin + 2, kBegin + 3, kBegin + 4}},
                        {15'000, {15'002, 15'003, 15'004}},
                        {19'000, {19'002, 19'003, 19'004}}};
  RequestId id = 0;
  for (const auto& [first, drafts] : cases) {
    const auto text = sequence(++id, rising_then(kLong, {first, first + 1}));
    EXPECT_EQ(drafts_of(*text), drafts) << first;
  }
}

TEST_F(NgramDraftsTest, come_from_all_of_a_prompt_of_up_to_8192_tokens) {
  const auto text = sequence(1, rising_then(kIndexed, {0, 1}));
  EXPECT_EQ(drafts_of(*text), (Ids{2, 3, 4}));
  const auto longer = sequence(2, rising_then(kIndexed + 1, {0, 1}));
  EXPECT_EQ(drafts_of(*longer), Ids{});
}

TEST_F(NgramDraftsTest, follow_a_long_text_over_several_rounds) {
  const auto text = sequence(1, rising_then(kLong, {5, 3}));
  EXPECT_EQ(drafts_of(*text), Ids{});
  append(*text, 16'000);
  EXPECT_EQ(drafts_of(*text), Ids{});
  append(*text, 16'001);
  EXPECT_EQ(drafts_of(*text), (Ids{16'002, 16'003, 16'004}));
  for (const TokenId id : {16'002, 16'003, 7}) append(*text, id);  // a round that accepts drafts
  EXPECT_EQ(drafts_of(*text), Ids{});
  append(*text, 5);
  append(*text, 3);
  EXPECT_EQ(drafts_of(*text), (Ids{16'000, 16'001, 16'002})) << "what has been generated counts";
  append(*text, 100);
  append(*text, 101);
  EXPECT_EQ(drafts_of(*text), Ids{}) << "the beginning stays out of sight";
}

// Two random texts in turns, with rounds of one to five tokens, against an index of what each of
// them may look at.
TEST_F(NgramDraftsTest, of_several_requests_are_those_of_an_index_of_each_end) {
  PhiloxStream random(11);
  const auto draw = [&] { return static_cast<TokenId>(random.below(60)); };
  std::vector<std::unique_ptr<Sequence>> texts;
  std::vector<Index> skipped;
  for (const Index size : {kLong, Index{9000}, Index{300}}) {
    std::vector<TokenId> prompt;
    for (Index i = 0; i < size; ++i) prompt.push_back(draw());
    texts.push_back(sequence(static_cast<RequestId>(size), std::move(prompt)));
    skipped.push_back(std::max<Index>(0, size - kIndexed));
  }
  Index proposed = 0;
  for (int round = 0; round < 12; ++round) {
    std::vector<DraftJob> jobs;
    for (const auto& text : texts) {
      jobs.push_back({.id = text->id(), .sequence = text.get(), .count = 4});
    }
    drafts_->propose(jobs);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto seen = texts[i]->tokens().subspan(static_cast<std::size_t>(skipped[i]));
      ASSERT_EQ(jobs[i].drafts, NgramIndex(seen).propose(4)) << "text " << i << " round " << round;
      proposed += std::ssize(jobs[i].drafts);
      for (std::uint32_t left = 1 + random.below(5); left > 0; --left) append(*texts[i], draw());
    }
  }
  EXPECT_GT(proposed, 50);
}

TEST_F(NgramDraftsTest, forget_a_request_and_know_nothing_of_the_next_one_with_its_id) {
  const auto first = sequence(1, rising_then(kLong, {15'000, 15'001}));
  EXPECT_EQ(drafts_of(*first), (Ids{15'002, 15'003, 15'004}));
  drafts_->forget(1);
  const auto next = sequence(1, {4, 5, 6, 4, 5});
  EXPECT_EQ(drafts_of(*next), (Ids{6, 4, 5}));
  append(*next, 6);
  EXPECT_EQ(drafts_of(*next, 1), Ids{4});
}

}  // namespace
}  // namespace hone::infer
