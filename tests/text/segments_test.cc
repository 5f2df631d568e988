// SPDX-License-Identifier: Apache-2.0
// The ids of texts whose parts may spell different tokens, and the tokens around turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/text/turn_tokens.h"
#include "tests/text/toy_vocabulary.h"

namespace hone::text {
namespace {

using test::Ids;
using testing::ElementsAre;
using Segments = std::vector<TextSegment>;

constexpr bool kYes = true, kNo = false;

// Bytes are ids 0–255; "<|end|>" is special, "<tool>" is added, "<l>" and "<r>" take white space.
struct Toy {
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenId end = 0, tool = 0, left = 0, right = 0, long_end = 0;
};

Toy make_toy(Vocabulary v) {
  Toy toy;
  const auto add = [&v](const char* piece, TokenType type) {
    test::add_piece(v, piece, type);
    return static_cast<TokenId>(v.pieces.size() - 1);
  };
  toy.end = static_cast<TokenId>(*find_piece(v, "<|end|>"));
  toy.tool = add("<tool>", TokenType::UserDefined);
  toy.left = add("<l>", TokenType::Control);
  toy.right = add("<r>", TokenType::UserDefined);
  toy.long_end = add("<|end|><tool>", TokenType::Control);
  v.added_tokens = {{.id = toy.left, .special = true, .lstrip = true},
                    {.id = toy.right, .rstrip = true}};
  toy.tokenizer = make_tokenizer(std::move(v));
  return toy;
}

Toy byte_level_toy() {
  return make_toy(test::toy_byte_level({{"t", "h"}, {"th", "e"}, {" ", "the"}, {"<", "|"}}));
}

Toy sentencepiece_toy() {
  Vocabulary v = test::toy_sentencepiece({{"▁", -1}, {"t", -2}, {"▁t", -3}, {"a", -4}, {"ta", -5}});
  test::add_piece(v, "<|end|>", TokenType::Control);
  return make_toy(std::move(v));
}

std::string spelled(const Tokenizer& tokenizer, const Segments& segments) {
  std::string out;
  for (const TokenId id : tokenizer.encode(std::span(segments))) {
    if (!out.empty()) out += " ";
    out += tokenizer.piece(id);
  }
  return out;
}

TEST(Segments, of_one_text_that_allows_all_give_the_ids_of_the_text) {
  PhiloxStream random(3);
  for (const Toy& toy : {byte_level_toy(), sentencepiece_toy()}) {
    for (int i = 0; i < 500; ++i) {
      std::string text = test::random_text(random, 1 + random.below(30));
      for (const char* token : {"<|end|>", " <l>", "<r>  ", "<tool>"}) {
        if (random.below(2) == 0) text.insert(random.below(1 + std::uint32_t(text.size())), token);
      }
      const Segments segments = {{.text = text, .allow_special = true}};
      ASSERT_EQ(toy.tokenizer->encode(std::span(segments)),
                toy.tokenizer->encode(text, {.add_bos = false, .parse_special = true}));
      const Segments plain = {{.text = text, .allow_special = false}};
      if (text.find("<l>") != std::string::npos || text.find("<|") != std::string::npos) continue;
      ASSERT_EQ(toy.tokenizer->encode(std::span(plain)),
                toy.tokenizer->encode(text, {.add_bos = false}));
    }
  }
}

TEST(Segments, do_not_depend_on_where_a_text_is_cut) {
  const std::string text = "the the<|end|> \n<l>the<tool> <r>  é\xFF the<|end|><tool>";
  for (const Toy& toy : {byte_level_toy(), sentencepiece_toy()}) {
    for (const bool special : {false, true}) {
      for (const bool added : {false, true}) {
        const auto segment = [&](std::string part) {
          return TextSegment{
              .text = std::move(part), .allow_special = special, .allow_added = added};
        };
        const Segments whole = {segment(text)};
        const Ids expected = toy.tokenizer->encode(std::span(whole));
        for (std::size_t a = 0; a <= text.size(); ++a) {
          for (std::size_t b = a; b <= text.size(); ++b) {
            const Segments cut = {segment(text.substr(0, a)), segment(text.substr(a, b - a)),
                                  segment(text.substr(b))};
            ASSERT_EQ(toy.tokenizer->encode(std::span(cut)), expected) << a << " " << b;
          }
        }
      }
    }
  }
}

TEST(Segments, keep_tokens_that_are_not_allowed_as_text) {
  const Toy toy = byte_level_toy();
  const Tokenizer& t = *toy.tokenizer;
  EXPECT_EQ(spelled(t, {{"<|end|>", kYes, kYes}}), "<|end|>");
  EXPECT_EQ(spelled(t, {{"<|end|>", kNo, kYes}}), "<| e n d | >");
  EXPECT_EQ(spelled(t, {{"<tool>", kNo, kYes}}), "<tool>");
  EXPECT_EQ(spelled(t, {{"<tool>", kYes, kNo}}), "< t o o l >");
  EXPECT_EQ(spelled(t, {{"<|end|>", kYes, kNo}, {"<|end|>", kNo, kNo}, {"<tool>", kNo, kYes}}),
            "<|end|> <| e n d | > <tool>");
  // The longest token that is allowed wins.
  EXPECT_EQ(spelled(t, {{"<|end|><tool>", kYes, kYes}}), "<|end|><tool>");
  EXPECT_EQ(spelled(t, {{"<|end|>", kYes, kYes}, {"<tool>", kNo, kYes}}), "<|end|> <tool>");
  EXPECT_EQ(spelled(t, {{"<|end|>", kNo, kYes}, {"<tool>", kYes, kYes}}), "<| e n d | > <tool>");
}

TEST(Segments, keep_tokens_that_reach_into_what_is_not_allowed_as_text) {
  const Toy toy = byte_level_toy();
  const std::string token = "<|end|>";
  for (std::size_t cut = 1; cut < token.size(); ++cut) {
    const std::string head = token.substr(0, cut), tail = token.substr(cut);
    EXPECT_EQ(spelled(*toy.tokenizer, {{head, kYes, kYes}, {tail, kNo, kYes}}), "<| e n d | >");
    EXPECT_EQ(spelled(*toy.tokenizer, {{head, kNo, kYes}, {tail, kYes, kYes}}), "<| e n d | >");
    EXPECT_EQ(spelled(*toy.tokenizer, {{head, kYes, kYes}, {"", kNo, kNo}, {tail, kYes, kYes}}),
              "<|end|>");
  }
  EXPECT_EQ(spelled(*toy.tokenizer, {{"<|", kYes, kYes}, {"end", kNo, kNo}, {"|>", kYes, kYes}}),
            "<| e n d | >");
}

TEST(Segments, let_tokens_take_white_space_of_their_neighbors) {
  const Toy toy = byte_level_toy();
  EXPECT_EQ(spelled(*toy.tokenizer, {{"a  ", kNo, kNo}, {"<l>", kYes, kYes}}), "a <l>");
  EXPECT_EQ(spelled(*toy.tokenizer, {{"<r>", kNo, kYes}, {" \n a", kNo, kNo}}), "<r> a");
  EXPECT_EQ(spelled(*toy.tokenizer, {{"a ", kYes, kYes}, {"<l>", kNo, kYes}}), "a Ġ < l >");
}

TEST(Segments, may_be_empty) {
  const Toy toy = byte_level_toy();
  EXPECT_EQ(spelled(*toy.tokenizer, {}), "");
  EXPECT_EQ(spelled(*toy.tokenizer, {{"", kYes, kYes}, {"", kNo, kNo}}), "");
  EXPECT_EQ(spelled(*toy.tokenizer,
                    {{"", kNo, kNo}, {"th", kYes, kYes}, {"", kNo, kNo}, {"e", kNo, kNo}}),
            "the");
}

TEST(Segments, get_one_dummy_space_and_no_bos) {
  const Toy toy = sentencepiece_toy();
  EXPECT_EQ(spelled(*toy.tokenizer, {{"t", kYes, kYes}, {"a", kNo, kNo}}), "▁t a");
  EXPECT_EQ(spelled(*toy.tokenizer, {{"", kNo, kNo}, {"a", kNo, kNo}}), "▁ a");
}

Vocabulary of_controls(std::initializer_list<const char*> pieces) {
  Vocabulary v = test::toy_byte_level({});
  for (const char* piece : pieces) test::add_piece(v, piece, TokenType::Control);
  return v;
}

std::vector<std::string> ends_of(Vocabulary v) {
  const auto tokenizer = make_tokenizer(std::move(v));
  std::vector<std::string> out;
  for (const TokenId id : end_of_turn_ids(*tokenizer)) out.push_back(tokenizer->piece(id));
  return out;
}

TEST(TurnTokens, put_bos_in_front_where_the_tokenizer_adds_it) {
  Vocabulary v = of_controls({"<s>"});
  v.bos = 257;
  EXPECT_THAT(with_bos(*make_tokenizer(v), {1, 2}), ElementsAre(1, 2));
  v.add_bos = true;
  const auto tokenizer = make_tokenizer(v);
  EXPECT_THAT(with_bos(*tokenizer, {1, 2}), ElementsAre(257, 1, 2));
  EXPECT_THAT(with_bos(*tokenizer, {257, 1}), ElementsAre(257, 1));
  EXPECT_THAT(with_bos(*tokenizer, {}), ElementsAre(257));
}

TEST(TurnTokens, end_answers_of_known_families) {
  EXPECT_THAT(ends_of(of_controls({"<|im_start|>", "<|im_end|>", "<|eot_id|>"})),
              ElementsAre("<|end|>", "<|im_end|>", "<|eot_id|>"));
  Vocabulary without_eos = of_controls({"<end_of_turn>", "<other>"});
  without_eos.eos.reset();
  test::add_piece(without_eos, "<|eom_id|>", TokenType::Normal);
  EXPECT_THAT(ends_of(std::move(without_eos)), ElementsAre("<|end|>", "<end_of_turn>"));
  Vocabulary own = of_controls({"<stop>"});
  own.eos = 257;
  EXPECT_THAT(ends_of(std::move(own)), ElementsAre("<|end|>", "<stop>"));
}

TEST(TurnTokens, do_not_end_an_answer_with_one_part_of_it) {
  Vocabulary v = of_controls({"<|return|>", "<|call|>"});
  v.eos = 257;
  EXPECT_THAT(ends_of(v), ElementsAre("<|return|>", "<|call|>"));
  EXPECT_THAT(ends_of(of_controls({"<|return|>"})), ElementsAre("<|end|>", "<|return|>"));
}

TEST(TurnTokens, have_names_in_templates) {
  Vocabulary v = of_controls({"<s>", "</s>", "<unk>", "<pad>"});
  v.bos = 257;
  v.eos.reset();
  v.unknown = 259;
  using Names = std::map<std::string, std::string>;
  EXPECT_EQ(special_token_names(*make_tokenizer(v)),
            (Names{{"bos_token", "<s>"}, {"unk_token", "<unk>"}}));
  v.eos = 258;
  v.padding = 260;
  EXPECT_EQ(special_token_names(*make_tokenizer(v)), (Names{{"bos_token", "<s>"},
                                                            {"eos_token", "</s>"},
                                                            {"unk_token", "<unk>"},
                                                            {"pad_token", "<pad>"}}));
}

}  // namespace
}  // namespace hone::text
