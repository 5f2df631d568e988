// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/text/load_tokenizer.h"
#include "tests/support/test_data.h"
#include "tests/text/toy_vocabulary.h"

namespace hone::text {
namespace {

using test::pieces_of;
using test::toy_sentencepiece;
using testing::ElementsAre;

// "▁" and the letters a, b, c, and what merges them.
Vocabulary toy(std::vector<std::pair<std::string, float>> unions) {
  std::vector<std::pair<std::string, float>> pieces = {
      {"▁", -100}, {"a", -100}, {"b", -100}, {"c", -100}};
  pieces.insert(pieces.end(), unions.begin(), unions.end());
  return toy_sentencepiece(pieces);
}

TEST(SentencePieceBpe, merges_the_best_score_first) {
  const auto t = make_tokenizer(toy({{"ab", -2}, {"bc", -1}, {"abc", -3}, {"▁a", -9}}));
  EXPECT_THAT(pieces_of(*t, "abc"), ElementsAre("▁", "abc"));  // bc, then a+bc before ▁+a
  EXPECT_THAT(pieces_of(*t, "ab"), ElementsAre("▁", "ab"));
  EXPECT_THAT(pieces_of(*t, "a"), ElementsAre("▁a"));
}

TEST(SentencePieceBpe, merges_equal_scores_from_the_left) {
  const auto t = make_tokenizer(toy({{"ab", -1}, {"ba", -1}}));
  EXPECT_THAT(pieces_of(*t, "aba"), ElementsAre("▁", "ab", "a"));
  EXPECT_THAT(pieces_of(*t, "bab"), ElementsAre("▁", "ba", "b"));
}

TEST(SentencePieceBpe, falls_back_to_bytes) {
  const auto t = make_tokenizer(toy({}));
  EXPECT_THAT(pieces_of(*t, "aé"), ElementsAre("▁", "a", "<0xC3>", "<0xA9>"));
  EXPECT_EQ(t->piece_bytes(3 + 0xC3), "\xC3");
  EXPECT_EQ(t->decode(t->encode("aé\xFF")), "aé\xFF");
}

TEST(SentencePieceBpe, fuses_unknown_characters_where_there_are_no_bytes) {
  Vocabulary v = toy({});
  v.byte_fallback = false;
  EXPECT_THAT(pieces_of(*make_tokenizer(v), "a漢字b"), ElementsAre("▁", "a", "<unk>", "b"));
  v.fuse_unknown = false;
  EXPECT_THAT(pieces_of(*make_tokenizer(v), "漢字"), ElementsAre("▁", "<unk>", "<unk>"));
  v.unknown.reset();
  const auto t = make_tokenizer(v);
  EXPECT_EQ(test::failure_of([&] { t->encode("漢"); }).category, ErrorCategory::InvalidArgument);
}

TEST(SentencePieceBpe, merges_a_character_that_is_no_piece_into_one_that_is) {
  const auto t = make_tokenizer(toy({{"a漢", -1}}));
  EXPECT_THAT(pieces_of(*t, "a漢"), ElementsAre("▁", "a漢"));
}

TEST(SentencePieceBpe, takes_unused_pieces_apart_again) {
  Vocabulary v = toy({{"ab", -1}, {"abc", -2}});
  v.types[*find_piece(v, "ab")] = TokenType::Unused;
  const auto t = make_tokenizer(v);
  EXPECT_THAT(pieces_of(*t, "abc"), ElementsAre("▁", "abc"));
  EXPECT_THAT(pieces_of(*t, "ab"), ElementsAre("▁", "a", "b"));
}

TEST(SentencePieceBpe, keeps_user_defined_pieces_whole) {
  Vocabulary v = toy({{"ab", -1}, {"ca", -1}});
  test::add_piece(v, "bc", TokenType::UserDefined);
  EXPECT_THAT(pieces_of(*make_tokenizer(v), "abca"), ElementsAre("▁", "a", "bc", "a"));
}

// 500,000 added tokens take quadratic time if each is sought among all: minutes.
TEST(SentencePieceBpe, takes_many_user_defined_pieces_in_linear_time) {
  Vocabulary v = toy_sentencepiece({});
  const auto first = static_cast<TokenId>(v.pieces.size());
  for (TokenId i = 0; i < 500'000; ++i) {
    test::add_piece(v, concat("<", i, ">"), TokenType::UserDefined);
    v.added_tokens.push_back({.id = first + i});
  }
  EXPECT_EQ(make_tokenizer(v)->encode("<499999>", {.add_bos = false}).back(), first + 499'999);
}

// All n pieces of equal letters are made of n - 1 pairs each.
TEST(SentencePieceBpe, refuses_more_pairs_than_any_vocabulary_has) {
  Vocabulary v = toy_sentencepiece({});
  for (const char letter :
       {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q'}) {
    for (std::size_t n = 1; n <= kMostPieceBytes; ++n) {
      test::add_piece(v, std::string(n, letter), TokenType::Normal, -static_cast<float>(n));
    }
  }
  const auto failure = test::failure_of([&] { make_tokenizer(v); });
  EXPECT_EQ(failure.category, ErrorCategory::CorruptFile);
  EXPECT_NE(failure.message.find("pairs of pieces"), std::string::npos) << failure.message;
}

TEST(SentencePieceBpe, treats_spaces_as_its_flags_say) {
  Vocabulary v = toy({{"▁a", -1}, {"▁▁", -2}});
  EXPECT_THAT(pieces_of(*make_tokenizer(v), "  a"), ElementsAre("▁▁", "▁a"));
  v.remove_extra_whitespaces = true;
  EXPECT_THAT(pieces_of(*make_tokenizer(v), "  a   a "), ElementsAre("▁a", "▁a"));
  EXPECT_THAT(pieces_of(*make_tokenizer(v), "a▁ ▁"), ElementsAre("▁a"));
  EXPECT_TRUE(pieces_of(*make_tokenizer(v), "   ").empty());
  v.remove_extra_whitespaces = false;
  v.add_space_prefix = false;
  EXPECT_THAT(pieces_of(*make_tokenizer(v), "a a"), ElementsAre("a", "▁a"));
  v.add_space_prefix = v.prefix_if_missing = true;
  EXPECT_THAT(pieces_of(*make_tokenizer(v), " a"), ElementsAre("▁a"));
  EXPECT_THAT(pieces_of(*make_tokenizer(v), "a"), ElementsAre("▁a"));
}

TEST(SentencePieceBpe, puts_the_dummy_space_after_added_tokens_unless_only_first) {
  Vocabulary v = toy({{"▁a", -1}});
  EXPECT_THAT(pieces_of(*make_tokenizer(v), "a</s>a", true), ElementsAre("▁a", "</s>", "▁a"));
  v.prefix_only_first = true;
  EXPECT_THAT(pieces_of(*make_tokenizer(v), "a</s>a", true), ElementsAre("▁a", "</s>", "a"));
  EXPECT_EQ(pieces_of(*make_tokenizer(v), "</s>").size(), 5u);  // text, unless asked
}

TEST(SentencePieceBpe, strips_the_dummy_space_once) {
  const auto t = make_tokenizer(toy({{"▁a", -1}, {"▁▁", -2}}));
  for (const std::string text : {"a", " a", "  a  ", "", " "}) {
    EXPECT_EQ(t->decode(t->encode(text)), text);
    EXPECT_EQ(t->decode(t->encode(text, {.add_bos = false})), text);
  }
}

TEST(SentencePieceBpe, obeys_listed_merges_before_scores) {
  Vocabulary v = toy({{"ab", -1}, {"bc", -2}});
  v.merges = {{"b", "c"}, {"a", "b"}};
  EXPECT_THAT(pieces_of(*make_tokenizer(v), "abc"), ElementsAre("▁", "a", "bc"));
  EXPECT_FALSE(scores_decide_merges(v));
  v.merges = {{"a", "b"}, {"b", "c"}};
  EXPECT_TRUE(scores_decide_merges(v));
}

TEST(SentencePieceBpe, refuses_scores_that_are_no_numbers) {
  Vocabulary v = toy({{"ab", std::numeric_limits<float>::quiet_NaN()}});
  EXPECT_EQ(test::failure_of([&] { make_tokenizer(v); }).category, ErrorCategory::CorruptFile);
  v.scores.pop_back();
  EXPECT_EQ(test::failure_of([&] { make_tokenizer(v); }).category, ErrorCategory::CorruptFile);
}

// The character U+2581 itself is the one that SentencePiece cannot give back: it is its space.
TEST(SentencePieceBpe, gives_back_any_bytes) {
  PhiloxStream random(23);
  const auto t = make_tokenizer(toy({{"▁a", -1}, {"▁▁", -2}, {"ab", -3}, {"é", -4}, {"é▁", -5}}));
  for (int round = 0; round < 5000; ++round) {
    const std::string text = test::random_text(random, 1 + random.below(40));
    ASSERT_EQ(t->decode(t->encode(text)), text);
  }
}

TEST(SentencePieceBpe, gives_the_prompt_ids_of_the_published_story_model) {
  HONE_REQUIRE_TEST_DATA(model, "lm/tok512.model");
  HONE_REQUIRE_TEST_DATA(bin, "lm/tok512.bin");
  HONE_REQUIRE_TEST_DATA(expected, "lm/stories260K.expected.json");
  const Json cases = read_json_file(expected)["cases"];
  ASSERT_EQ(cases.size(), 3u);
  for (const auto& path : {model, bin}) {
    const auto t = load_tokenizer_or_throw(path);
    for (const Json& one : cases) {
      EXPECT_EQ(t->encode(one["prompt"].get<std::string>()), one["prompt_ids"].get<test::Ids>());
      // The text is a continuation: its own first space stays.
      std::string text;
      for (const TokenId id : one["generated_ids"].get<test::Ids>()) text += t->piece_bytes(id);
      EXPECT_EQ(text, one["text"].get<std::string>());
    }
  }
}

TEST(SentencePieceBpe, reads_the_same_ids_from_both_forms_of_the_llama2_vocabulary) {
  HONE_REQUIRE_TEST_DATA(model, "tokenizers/llama2_tokenizer.model");
  HONE_REQUIRE_TEST_DATA(bin, "tokenizers/llama2_tokenizer.bin");
  HONE_REQUIRE_TEST_DATA(shakespeare, "text/tinyshakespeare.txt");
  const auto a = load_tokenizer_or_throw(model), b = load_tokenizer_or_throw(bin);
  EXPECT_EQ(a->vocabulary().pieces, b->vocabulary().pieces);
  EXPECT_EQ(a->vocabulary().types, b->vocabulary().types);
  const std::string text = read_text_file(shakespeare).substr(0, 200'000);
  const test::Ids ids = a->encode(text);
  EXPECT_EQ(ids, b->encode(text));
  EXPECT_EQ(a->decode(ids), text);
  // Published ids of Llama 2.
  EXPECT_EQ(a->encode("Hello world"), (test::Ids{1, 15043, 3186}));
}

}  // namespace
}  // namespace hone::text
