// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <iterator>
#include <sstream>

#include "hone/core/file/file_io.h"
#include "hone/text/load_tokenizer.h"
#include "tests/support/test_data.h"
#include "tests/text/toy_vocabulary.h"

namespace hone::text {
namespace {

using test::pieces_of;
using test::toy_byte_level;
using testing::ElementsAre;

// Worked by hand: "lo" (rank 0) merges before "ow" (rank 1), then "low" (rank 2).
TEST(ByteLevelBpe, merges_lowest_rank_first) {
  const auto t =
      make_tokenizer(toy_byte_level({{"l", "o"}, {"o", "w"}, {"lo", "w"}, {" ", "low"}}));
  EXPECT_THAT(pieces_of(*t, "low ow lo low"), ElementsAre("low", "Ġ", "ow", "Ġ", "lo", "Ġlow"));
}

TEST(ByteLevelBpe, merges_equal_ranks_from_the_left) {
  const auto t = make_tokenizer(toy_byte_level({{"a", "a"}, {"aa", "a"}}));
  EXPECT_THAT(pieces_of(*t, "aaa"), ElementsAre("aaa"));
  EXPECT_THAT(pieces_of(*t, "aaaaa"), ElementsAre("aa", "aaa"));
}

TEST(ByteLevelBpe, takes_a_whole_word_first_only_with_ignore_merges) {
  Vocabulary v = toy_byte_level({{"a", "b"}});
  test::add_piece(v, "abc");
  EXPECT_THAT(pieces_of(*make_tokenizer(v), "abc"), ElementsAre("ab", "c"));
  v.ignore_merges = true;
  EXPECT_THAT(pieces_of(*make_tokenizer(v), "abc"), ElementsAre("abc"));
}

TEST(ByteLevelBpe, adds_a_space_in_front_only_where_there_is_none) {
  Vocabulary v = toy_byte_level({{" ", "a"}});
  v.add_space_prefix = true;
  const auto t = make_tokenizer(v);
  EXPECT_THAT(pieces_of(*t, "a"), ElementsAre("Ġa"));
  EXPECT_THAT(pieces_of(*t, " a"), ElementsAre("Ġa"));
  EXPECT_TRUE(pieces_of(*t, "").empty());
}

TEST(ByteLevelBpe, composes_before_splitting_with_nfc) {
  Vocabulary v = toy_byte_level({{"\xC3", "\xA9"}});
  const std::string decomposed = "e\xCC\x81";
  EXPECT_EQ(pieces_of(*make_tokenizer(v), decomposed).size(), 3u);
  v.nfc = true;
  EXPECT_THAT(pieces_of(*make_tokenizer(v), decomposed), ElementsAre("Ã©"));
}

TEST(ByteLevelBpe, reads_special_tokens_in_a_text_only_when_asked) {
  const auto t = make_tokenizer(toy_byte_level({}));
  EXPECT_EQ(pieces_of(*t, "a<|end|>b").size(), 9u);
  EXPECT_THAT(pieces_of(*t, "a<|end|>b", true), ElementsAre("a", "<|end|>", "b"));
  const test::Ids ids = t->encode("a<|end|>b", {.parse_special = true});
  EXPECT_EQ(t->decode(ids), "ab");
  EXPECT_EQ(t->decode(ids, true), "a<|end|>b");
}

TEST(ByteLevelBpe, adds_bos_and_eos_where_its_files_do) {
  Vocabulary v = toy_byte_level({});
  v.add_bos = v.add_eos = true;
  const auto t = make_tokenizer(v);
  EXPECT_EQ(t->encode("A"), (test::Ids{256, 65, 256}));
  EXPECT_EQ(t->encode("A", {.add_bos = false}), (test::Ids{65}));
}

TEST(ByteLevelBpe, gives_back_any_bytes) {
  PhiloxStream random(17);
  const auto t = make_tokenizer(
      toy_byte_level({{"t", "h"}, {"th", "e"}, {" ", "the"}, {"\xC3", "\xA9"}, {"A", "A"}}));
  for (int round = 0; round < 5000; ++round) {
    const std::string text = test::random_text(random, 1 + random.below(40));
    const test::Ids ids = t->encode(text);
    ASSERT_EQ(t->decode(ids), text);
    std::string joined;
    for (const TokenId id : ids) joined += t->piece_bytes(id);
    ASSERT_EQ(joined, text);
  }
}

TEST(ByteLevelBpe, refuses_a_vocabulary_that_lies) {
  const auto message = [](const std::function<void(Vocabulary&)>& spoil) {
    Vocabulary v = toy_byte_level({{"a", "b"}});
    spoil(v);
    const auto failure = test::failure_of([&] { make_tokenizer(v, "file"); });
    EXPECT_EQ(failure.category, ErrorCategory::CorruptFile);
    return failure.message;
  };
  using testing::HasSubstr;
  EXPECT_THAT(message([](Vocabulary& v) { v.pieces.clear(); }), HasSubstr("pieces"));
  EXPECT_THAT(message([](Vocabulary& v) { v.types.pop_back(); }), HasSubstr("one token type"));
  EXPECT_THAT(message([](Vocabulary& v) { v.pieces[7] = v.pieces[8]; }), HasSubstr("twice"));
  EXPECT_THAT(message([](Vocabulary& v) { v.pieces[7].clear(); }), HasSubstr("Token 7"));
  EXPECT_THAT(message([](Vocabulary& v) { v.bos = 9999; }), HasSubstr("BOS"));
  EXPECT_THAT(message([](Vocabulary& v) { v.eos = -1; }), HasSubstr("EOS"));
  EXPECT_THAT(message([](Vocabulary& v) { v.add_bos = true, v.bos.reset(); }), HasSubstr("BOS"));
  EXPECT_THAT(message([](Vocabulary& v) { v.merges.emplace_back("a", "zz"); }), HasSubstr("zz"));
  EXPECT_THAT(message([](Vocabulary& v) { v.types[3] = TokenType(9); }), HasSubstr("a token type"));
}

TEST(ByteLevelBpe, refuses_pieces_that_no_tokenizer_has) {
  Vocabulary v = toy_byte_level({});
  test::add_piece(v, std::string(kMostPieceBytes, 'a'));
  EXPECT_EQ(make_tokenizer(v)->vocab_size(), 258);
  test::add_piece(v, std::string(kMostPieceBytes + 1, 'b'));
  const auto failure = test::failure_of([&] { make_tokenizer(v); });
  EXPECT_EQ(failure.category, ErrorCategory::CorruptFile);
  EXPECT_NE(failure.message.find("at most 1024 bytes in the piece of token 258, got 1025"),
            std::string::npos)
      << failure.message;
}

TEST(ByteLevelBpe, refuses_ids_outside_the_vocabulary) {
  const auto t = make_tokenizer(toy_byte_level({}));
  for (const TokenId id : {-1, 257}) {
    const test::Ids ids = {id};
    EXPECT_EQ(test::failure_of([&] { t->decode(ids); }).category, ErrorCategory::InvalidArgument);
    EXPECT_EQ(test::failure_of([&] { t->piece(id); }).category, ErrorCategory::InvalidArgument);
  }
}

// As `tokenizers` does: pieces on both sides merge.
TEST(ByteLevelBpe, leaves_out_bytes_that_it_cannot_spell) {
  Vocabulary v = toy_byte_level({{"a", "b"}});
  v.pieces['x'] = "unrelated";
  v.pattern.clear();
  EXPECT_EQ(make_tokenizer(v)->encode("axbx"), (test::Ids{256}));
  EXPECT_EQ(make_tokenizer(v)->encode("x"), test::Ids());
  v.unknown = 'y';  // a configuration names it, the model does not
  EXPECT_EQ(make_tokenizer(v)->encode("xc"), (test::Ids{'c'}));
  v.types['y'] = TokenType::Unknown;
  EXPECT_EQ(make_tokenizer(v)->encode("axc"), (test::Ids{'a', 'y', 'c'}));
}

// llama.cpp's texts and expected ids for GPT-2's vocabulary.
TEST(ByteLevelBpe, gives_gpt2_ids_on_the_published_texts) {
  HONE_REQUIRE_TEST_DATA(vocab, "tokenizers/gpt2_vocab.json");
  HONE_REQUIRE_TEST_DATA(inputs, "tokenizers/ggml-vocab-gpt-2.gguf.inp");
  HONE_REQUIRE_TEST_DATA(outputs, "tokenizers/ggml-vocab-gpt-2.gguf.out");
  const auto t = load_tokenizer_or_throw(vocab);
  const std::string texts = read_text_file(inputs);
  std::istringstream lines(read_text_file(outputs));
  constexpr std::string_view kEnd = "\n__ggml_vocab_test__\n";  // of each text
  std::string line;
  int count = 0;
  std::size_t begin = 0;
  for (std::size_t end; (end = texts.find(kEnd, begin)) != std::string::npos; ++count) {
    ASSERT_TRUE(std::getline(lines, line));
    std::istringstream numbers(line);
    const test::Ids expected{std::istream_iterator<TokenId>(numbers), {}};
    const std::string text = texts.substr(begin, end - begin);
    const test::Ids ids = t->encode(text);
    EXPECT_EQ(ids, expected) << "text " << count << ": " << text;
    EXPECT_EQ(t->decode(ids), text);
    begin = end + kEnd.size();
  }
  EXPECT_EQ(count, 46);
}

double seconds_to_encode(const Tokenizer& t, const std::string& text, int repeats) {
  double best = 1e9;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    t.encode(text);
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

// 500 times the letters: n log n takes some 900 times as long, a few times more where the caches
// end or other programs compete for them; quadratic merging would take 250,000 times as long.
TEST(ByteLevelBpe, merges_a_million_equal_letters_in_near_linear_time) {
  HONE_REQUIRE_TEST_DATA(vocab, "tokenizers/gpt2_vocab.json");
  const auto t = load_tokenizer_or_throw(vocab);
  for (const char letter : {'a', ' ', '!', '\n'}) {
    const double shorter = seconds_to_encode(*t, std::string(2'000, letter), 5);
    const double longer = seconds_to_encode(*t, std::string(1'000'000, letter), 1);
    EXPECT_LT(longer, 30'000 * shorter) << letter;
  }
}

}  // namespace
}  // namespace hone::text
