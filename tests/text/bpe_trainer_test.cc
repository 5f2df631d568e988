// SPDX-License-Identifier: Apache-2.0
#include "hone/text/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "hone/core/file/file_io.h"
#include "hone/text/unicode/splitter.h"
#include "tests/support/test_data.h"
#include "tests/text/toy_vocabulary.h"

namespace hone::text {
namespace {

using testing::ElementsAre;
using Merges = std::vector<std::pair<std::string, std::string>>;

Vocabulary train(std::string_view text, const BpeTrainOptions& options) {
  return train_byte_level_bpe({&text, 1}, options);
}

TEST(BpeTrainer, makes_a_pure_byte_vocabulary) {
  const Vocabulary bytes = train("abc", {.vocab_size = 256, .special_tokens = {}});
  EXPECT_EQ(bytes.pieces.size(), 256u);
  EXPECT_TRUE(bytes.merges.empty());
  const Vocabulary v = train("abc", {.vocab_size = 257});
  EXPECT_EQ(v.pieces[0], "<|endoftext|>");
  EXPECT_EQ(v.bos, 0);
  EXPECT_EQ(v.eos, 0);
  const auto t = make_tokenizer(v);
  EXPECT_EQ(t->encode("!A").size(), 2u);
  EXPECT_EQ(t->encode("!"), (test::Ids{1}));  // the first letter of the alphabet
}

// "aab" 3 times, "ab" twice: (a,b) 5 times, (a,a) 3 times; then (a,ab) 3 times.
TEST(BpeTrainer, merges_the_most_frequent_pair_first) {
  const Vocabulary v = train("aab\naab\naab\nab\nab", {.vocab_size = 300, .min_count = 3});
  EXPECT_EQ(v.merges, (Merges{{"a", "b"}, {"a", "ab"}}));
}

TEST(BpeTrainer, takes_the_smaller_pair_on_ties) {
  const Vocabulary v = train("cd\nab\ncd\nab", {.vocab_size = 300});
  EXPECT_EQ(v.merges, (Merges{{"a", "b"}, {"c", "d"}}));
}

TEST(BpeTrainer, counts_overlapping_pairs_and_merges_them_from_the_left) {
  const Vocabulary v = train("aaaaa\naaaaa", {.vocab_size = 300});
  EXPECT_EQ(v.merges, (Merges{{"a", "a"}, {"aa", "a"}, {"aa", "aaa"}}));
}

// The definition, recounted from nothing for every merge.
Merges train_slowly(std::string_view text, Index merges, Index min_count) {
  std::map<std::string, Index> counts;
  Splitter(kGpt2Pattern, "test").split(text, [&](std::string_view w) { ++counts[std::string(w)]; });
  const Vocabulary bytes = train("", {.vocab_size = 256, .special_tokens = {}});
  std::map<std::string, int> ids;
  for (const std::string& piece : bytes.pieces) ids.emplace(piece, static_cast<int>(ids.size()));
  std::vector<std::pair<std::vector<std::string>, Index>> words;
  for (const auto& [word, count] : counts) {
    words.emplace_back(std::vector<std::string>(), count);
    for (const char byte : word) words.back().first.push_back(spell_bytes(std::string(1, byte)));
  }
  Merges result;
  while (static_cast<Index>(ids.size()) < 256 + merges) {
    std::map<std::pair<int, int>, std::pair<Index, std::pair<std::string, std::string>>> pairs;
    for (const auto& [symbols, count] : words) {
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        auto& pair = pairs[{ids.at(symbols[i]), ids.at(symbols[i + 1])}];
        pair.first += count;
        pair.second = {symbols[i], symbols[i + 1]};
      }
    }
    std::pair<Index, std::pair<std::string, std::string>> best;
    for (const auto& [key, pair] : pairs) {
      if (pair.first > best.first) best = pair;
    }
    if (best.first < min_count) break;
    const auto& [left, right] = result.emplace_back(best.second);
    ids.emplace(left + right, static_cast<int>(ids.size()));
    for (auto& [symbols, count] : words) {
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        if (symbols[i] != left || symbols[i + 1] != right) continue;
        symbols[i] += right;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  return result;
}

TEST(BpeTrainer, agrees_with_recounting_on_random_texts) {
  PhiloxStream random(29);
  for (int round = 0; round < 60; ++round) {
    std::string text;
    const std::uint32_t letters = 2 + random.below(4);
    for (int i = 0; i < 300; ++i) {
      text += random.below(6) == 0 ? ' ' : static_cast<char>('a' + random.below(letters));
    }
    const Vocabulary v = train(text, {.vocab_size = 316, .special_tokens = {}, .min_count = 1});
    ASSERT_EQ(v.merges, train_slowly(text, 60, 1)) << text;
  }
}

TEST(BpeTrainer, does_not_depend_on_how_texts_are_grouped) {
  const std::vector<std::string_view> parts = {"the cat ", "the hat ", "the bat"};
  const std::vector<std::string_view> reversed(parts.rbegin(), parts.rend());
  const BpeTrainOptions options{.vocab_size = 280};
  EXPECT_EQ(train_byte_level_bpe(parts, options).merges,
            train_byte_level_bpe(reversed, options).merges);
}

TEST(BpeTrainer, stops_when_pairs_run_out) {
  const Vocabulary v = train("ab ab", {.vocab_size = 100'000});
  EXPECT_EQ(v.merges, (Merges{{"a", "b"}}));
  EXPECT_EQ(v.pieces.size(), 258u);
}

TEST(BpeTrainer, refuses_a_vocabulary_below_the_bytes) {
  EXPECT_EQ(test::failure_of([] { train("a", {.vocab_size = 256}); }).category,
            ErrorCategory::InvalidArgument);
  EXPECT_EQ(test::failure_of([] { train("a", {.vocab_size = 300, .min_count = 0}); }).category,
            ErrorCategory::InvalidArgument);
}

TEST(BpeTrainer, learns_a_tokenizer_that_gives_back_its_text) {
  HONE_REQUIRE_TEST_DATA(path, "text/tinyshakespeare.txt");
  const std::string text = read_text_file(path);
  const Vocabulary v = train(text, {.vocab_size = 2048});
  EXPECT_EQ(v.pieces.size(), 2048u);
  EXPECT_EQ(v.merges.front(), std::pair(std::string("Ġ"), std::string("t")));
  const auto t = make_tokenizer(v);
  const test::Ids ids = t->encode(text);
  EXPECT_LT(ids.size() * 5, text.size() * 2);  // more than 2.5 bytes per token
  EXPECT_EQ(t->decode(ids), text);
}

}  // namespace
}  // namespace hone::text
