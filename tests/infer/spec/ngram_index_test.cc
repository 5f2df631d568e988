// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/spec/ngram_index.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "hone/core/error.h"
#include "hone/core/philox.h"

namespace hone::infer {
namespace {

using Tokens = std::vector<text::TokenId>;

// The definition: scans the text from its end for the last 4, 3, then 2 tokens.
Tokens scan(const Tokens& text, Index count) {
  const auto size = static_cast<Index>(text.size());
  for (Index length = 4; length >= 2; --length) {
    for (Index place = size - 1; place >= length; --place) {
      if (!std::equal(text.end() - length, text.end(), text.begin() + (place - length))) continue;
      Tokens extended = text;
      for (Index i = 0; i < count; ++i) {
        extended.push_back(extended[static_cast<std::size_t>(place + i)]);
      }
      return {extended.end() - count, extended.end()};
    }
  }
  return {};
}

Tokens random_text(Index size, std::uint32_t vocab, std::uint64_t seed) {
  PhiloxStream random(seed);
  Tokens text;
  for (Index i = 0; i < size; ++i) text.push_back(static_cast<text::TokenId>(random.below(vocab)));
  return text;
}

TEST(NgramIndex, proposes_what_a_scan_of_the_text_finds) {
  for (const std::uint32_t vocab : {1u, 2u, 5u, 30u}) {
    const Tokens text = random_text(300, vocab, vocab);
    NgramIndex index;
    for (std::size_t n = 0; n < text.size(); ++n) {
      const Tokens seen(text.begin(), text.begin() + static_cast<Index>(n));
      EXPECT_EQ(index.propose(6), scan(seen, 6)) << n;
      index.push(text[n]);
    }
  }
}

TEST(NgramIndex, prefers_the_longest_then_the_latest_match) {
  //                       1 2 3 4 -> 5        3 4 -> 6
  EXPECT_EQ(NgramIndex(Tokens{1, 2, 3, 4, 5, 9, 3, 4, 6, 1, 2, 3, 4}).propose(1), (Tokens{5}));
  EXPECT_EQ(NgramIndex(Tokens{3, 4, 5, 9, 3, 4, 6, 8, 3, 4}).propose(2), (Tokens{6, 8}));
}

TEST(NgramIndex, continues_a_period) {
  EXPECT_EQ(NgramIndex(Tokens{7, 8, 7, 8, 7}).propose(5), (Tokens{8, 7, 8, 7, 8}));
  EXPECT_EQ(NgramIndex(Tokens{7, 7, 7}).propose(3), (Tokens{7, 7, 7}));
}

TEST(NgramIndex, proposes_nothing_without_a_match) {
  EXPECT_TRUE(NgramIndex().propose(4).empty());
  EXPECT_TRUE(NgramIndex(Tokens{1}).propose(4).empty());
  EXPECT_TRUE(NgramIndex(Tokens{1, 2, 3, 2}).propose(4).empty());
  EXPECT_TRUE(NgramIndex(Tokens{1, 1, 1}).propose(0).empty());
}

TEST(NgramIndex, after_a_rollback_is_as_if_the_tokens_had_never_been_added) {
  PhiloxStream random(3);
  Tokens text;
  NgramIndex index;
  for (int step = 0; step < 3000; ++step) {
    if (random.below(4) == 0) {
      const auto kept =
          static_cast<Index>(random.below(static_cast<std::uint32_t>(text.size()) + 1));
      const Index size = std::max(kept, static_cast<Index>(text.size()) - 20);
      text.resize(static_cast<std::size_t>(size));
      index.truncate(size);
    } else {
      text.push_back(static_cast<text::TokenId>(random.below(3)));
      index.push(text.back());
    }
    ASSERT_EQ(index.propose(5), scan(text, 5)) << step;
  }
  index.truncate(0);
  EXPECT_EQ(index.size(), 0);
  EXPECT_THROW(index.truncate(1), Error);
  EXPECT_THROW(index.truncate(-1), Error);
}

}  // namespace
}  // namespace hone::infer
