// SPDX-License-Identifier: Apache-2.0
// Masks against the definition: a token is allowed exactly if its bytes can follow.
#include "hone/infer/grammar/token_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/core/file/json_io.h"
#include "hone/text/vocabulary.h"
#include "tests/infer/grammar/grammar_support.h"

namespace hone::infer::grammar {
namespace {

using ::testing::HasSubstr;

const char* const kSchemas[] = {
    "true",
    R"({"type":"string","maxLength":5})",
    R"({"type":"string","minLength":3,"maxLength":40})",
    R"({"type":"array","items":{"type":"integer","minimum":-20,"maximum":350},"maxItems":3})",
    R"({"type":"number","minimum":0.05,"exclusiveMaximum":129})",
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":3},"id":{"enum":[12,"a",
        null,{"a":1}]}},"required":["id"],"additionalProperties":{"type":"boolean"}})",
    R"({"anyOf":[{"type":"string","maxLength":2},{"type":"array","items":{"$ref":"#"}},
        {"type":"object","additionalProperties":{"$ref":"#"}},{"const":"a longer text"}]})"};

TEST(TokenConstraint, masks_equal_a_trial_of_every_token) {
  const auto vocabulary = test::make_small_vocabulary();
  PhiloxStream random(11);
  int states = 0;
  for (const char* text : kSchemas) {
    const auto schema = JsonSchema::compile(text);
    for (int run = 0; run < 12; ++run) {
      TokenConstraint constraint(schema, vocabulary);
      Matcher matcher(schema);  // on its own, by bytes
      std::string written;
      for (int i = 0; i < 40 && !constraint.is_complete(); ++i, ++states) {
        const TokenMask mask = constraint.allowed();
        const Matcher::State state = matcher.advance(matcher.start(), written);
        std::vector<text::TokenId> allowed;
        for (text::TokenId id = 0; id < vocabulary->size(); ++id) {
          const bool can_follow = vocabulary->is_stop(id)
                                      ? matcher.is_accepting(state)
                                      : !matcher.advance(state, vocabulary->bytes(id)).is_dead();
          ASSERT_EQ(mask.allows(id), can_follow) << text << " after " << written << ": " << id;
          if (can_follow && !vocabulary->is_stop(id)) allowed.push_back(id);
        }
        if (allowed.empty()) break;
        const auto id = allowed[random.below(static_cast<std::uint32_t>(allowed.size()))];
        constraint.accept(id);
        written += vocabulary->bytes(id);
      }
    }
  }
  EXPECT_GT(states, 500);
}

// A pattern that is not found yet takes some of the room, so that a long token no longer fits well
// before it is longer than the room.
TEST(TokenConstraint, masks_leave_room_for_what_a_pattern_misses) {
  const auto vocabulary = std::make_shared<const TokenVocabulary>(
      std::vector<std::string>{"\"", "x", "longer-text", "abcde"}, std::vector<text::TokenId>{});
  const auto schema = JsonSchema::compile(R"({"type":"string","pattern":"abcde","maxLength":30})");
  TokenConstraint constraint(schema, vocabulary);
  constraint.accept(0);
  for (int count = 0; count <= 25; ++count) {
    EXPECT_EQ(constraint.allowed().allows(2), count + 11 + 5 <= 30) << count;
    EXPECT_EQ(constraint.allowed().allows(1), count + 1 + 5 <= 30) << count;
    EXPECT_TRUE(constraint.allowed().allows(3)) << count;
    if (count < 25) constraint.accept(1);
  }
}

TEST(TokenConstraint, masks_within_escapes_and_characters_equal_a_trial_of_every_token) {
  const auto vocabulary = test::make_small_vocabulary();
  const char* const schemas[] = {
      R"({"type":"string","minLength":2,"maxLength":4})", R"({"type":"string"})",
      R"({"type":"object"})",
      R"({"anyOf":[{"type":"string","maxLength":3},{"type":"string","minLength":2}]})"};
  // From within strings and names: after a backslash, each hexadecimal digit, a surrogate and
  // incomplete UTF-8.
  const char* const texts[] = {"\\",    "\\u",        "\\ud",   "\\ud8",       "\\u0",
                               "\\u00", "\\u001",     "\\u000", "\\ud83d",     "\\ud83d\\",
                               "\xc3",  "\xe0",       "\xed",   "\xf0",        "\xf0\x9f",
                               "a\\",   "ab\xe4\xb8", "a\\n\\", "\\ud83d\\ud", ""};
  int states = 0;
  for (const char* schema : schemas) {
    const auto compiled = JsonSchema::compile(schema);
    Matcher matcher(compiled);
    for (const std::string text : texts) {
      const std::string written =
          std::string(schema).find("object") == std::string::npos ? "\"" + text : "{\"" + text;
      const Matcher::State state = matcher.advance(matcher.start(), written);
      if (state.is_dead()) continue;
      TokenConstraint constraint(compiled, vocabulary);
      for (const char byte : written) constraint.accept(static_cast<unsigned char>(byte));
      const TokenMask mask = constraint.allowed();
      for (text::TokenId id = 0; id + 1 < vocabulary->size(); ++id) {
        EXPECT_EQ(mask.allows(id), !matcher.advance(state, vocabulary->bytes(id)).is_dead())
            << schema << " after " << written << ": " << vocabulary->bytes(id);
      }
      ++states;
    }
  }
  EXPECT_GT(states, 60);
}

TEST(TokenConstraint, alternatives_that_go_on_alike_stay_few) {
  Matcher matcher(JsonSchema::compile(
      R"({"type":"array","items":{"anyOf":[{"type":"integer"},{"type":"number"},
          {"type":"array","items":{"anyOf":[{"type":"string"},{"type":"string","maxLength":3}]}},
          {"type":"object","maxLength":4}]}})"));
  std::string text = "[1";
  for (int i = 0; i < 300; ++i)
    text += i % 3 == 0 ? ", 7" : i % 3 == 1 ? ", [\"a\", \"b\"]" : ",{\"k\":1}";
  const Matcher::State state = matcher.advance(matcher.start(), text);
  EXPECT_FALSE(state.is_dead());
  EXPECT_FALSE(matcher.advance(state, ",-3]").is_dead());
}

TEST(TokenConstraint, output_can_be_taken_back) {
  const auto vocabulary = test::make_small_vocabulary();
  TokenConstraint constraint(JsonSchema::compile(kSchemas[5]), vocabulary);
  constraint.accept('{');
  const Matcher::State before = constraint.state();
  const TokenMask mask = constraint.allowed();
  for (const char byte : std::string("\"id\":12}")) {
    constraint.accept(static_cast<unsigned char>(byte));
  }
  EXPECT_TRUE(constraint.is_complete());
  constraint.restore(before);
  for (text::TokenId id = 0; id < vocabulary->size(); ++id) {
    EXPECT_EQ(constraint.allowed().allows(id), mask.allows(id));
  }
  constraint.accept('"');
  EXPECT_FALSE(constraint.is_accepting());
}

TEST(TokenConstraint, stop_tokens_come_only_where_the_text_may_end) {
  const auto vocabulary = test::make_small_vocabulary();
  const text::TokenId stop = vocabulary->stop_ids()[0];
  TokenConstraint constraint(JsonSchema::compile(R"({"type":"integer","maximum":12,"minimum":1})"),
                             vocabulary);
  EXPECT_FALSE(constraint.allowed().allows(stop));
  EXPECT_THAT(hone::test::error_of([&] { constraint.accept(stop); }), HasSubstr("mask allows"));
  constraint.accept('1');
  EXPECT_TRUE(constraint.allowed().allows(stop));
  EXPECT_TRUE(constraint.allowed().allows('2'));
  EXPECT_FALSE(constraint.allowed().allows('3'));
  EXPECT_FALSE(constraint.is_complete());
  constraint.accept(stop);
}

TEST(TokenConstraint, a_vocabulary_without_a_needed_byte_is_an_error_by_name) {
  std::vector<std::string> tokens = {"{", "\"", "a", "</s>"};
  const text::TokenId stop = 3;
  const auto vocabulary =
      std::make_shared<const TokenVocabulary>(std::move(tokens), std::span(&stop, 1));
  TokenConstraint constraint(JsonSchema::compile(R"({"type":"object","required":["a"]})"),
                             vocabulary);
  for (const text::TokenId id : {0, 1, 2, 1}) constraint.accept(id);
  EXPECT_THAT(hone::test::error_of([&] { constraint.allowed(); }),
              HasSubstr("no token that continues"));
}

TEST(TokenConstraint, stays_exact_beyond_the_masks_that_it_keeps) {
  const auto vocabulary = test::make_small_vocabulary();
  const auto schema = JsonSchema::compile(R"({"type":"object","maxLength":1})");
  TokenConstraint constraint(schema, vocabulary);
  std::string text = "{";
  constraint.accept('{');
  const auto put = [&](const std::string& bytes) {
    for (const char byte : bytes) {
      ASSERT_TRUE(constraint.allowed().allows(static_cast<unsigned char>(byte)));
      constraint.accept(static_cast<unsigned char>(byte));
    }
    text += bytes;
  };
  for (int i = 0; i < 150; ++i) put(concat(i == 0 ? "" : ",", "\"k", i, "\":", i));
  put(",\"k7");
  EXPECT_FALSE(constraint.allowed().allows('"')) << "the name is used";
  put("x\":0}");
  EXPECT_TRUE(constraint.is_complete());
  EXPECT_EQ(parse_json(text, "output").size(), 151u);
}

TEST(TokenConstraint, an_object_has_at_most_256_unlisted_names) {
  Matcher matcher(JsonSchema::compile(R"({"type":"object"})"));
  auto state = matcher.advance(matcher.start(), "{\"0\":0");
  for (int i = 1; i < 256; ++i) state = matcher.advance(state, concat(",\"", i, "\":0"));
  EXPECT_FALSE(state.is_dead());
  EXPECT_TRUE(matcher.advance(state, ",").is_dead());
  EXPECT_TRUE(matcher.is_complete(matcher.advance(state, "}")));
  const std::string longest(128, 'n');
  state = matcher.advance(matcher.start(), "{\"" + longest);
  EXPECT_TRUE(matcher.advance(state, "n").is_dead());
  state = matcher.advance(state, "\":1,\"" + longest.substr(1));
  state = matcher.advance(state, "n");
  EXPECT_TRUE(matcher.advance(state, "\"").is_dead()) << "the name is used";
  state = matcher.advance(state, "n");  // and so may be longer than others
  EXPECT_TRUE(matcher.advance(state, "n").is_dead());
  EXPECT_FALSE(matcher.advance(state, "\"").is_dead());
}

// Otherwise a text could neither end such a name nor go on with it.
TEST(TokenConstraint, an_unlisted_name_may_be_longer_than_those_before_it) {
  const std::string listed(200, 'n');
  Matcher matcher(JsonSchema::compile(
      concat(R"({"type":"object","properties":{")", listed, R"(":{"type":"null"}}})")));
  std::string text = "{";
  for (int i = 1; i < 20; ++i) {
    text += concat(i == 1 ? "" : ",", "\"n", std::string(199 + i, 'n'));
    auto state = matcher.advance(matcher.start(), text);
    ASSERT_FALSE(state.is_dead()) << i;
    EXPECT_TRUE(matcher.advance(state, "n").is_dead()) << i;
    EXPECT_FALSE(matcher.advance(state, "\":0").is_dead()) << i;
    text += "\":0";
  }
}

TEST(TokenVocabulary, control_tokens_and_rows_without_a_piece_are_never_allowed) {
  text::Vocabulary source;
  source.model = text::TokenizerModel::SentencePieceBpe;
  source.pieces = {"<unk>", "<s>", "</s>", "\"", "a"};
  source.types = {text::TokenType::Unknown, text::TokenType::Control, text::TokenType::Control,
                  text::TokenType::Normal, text::TokenType::Normal};
  source.scores.assign(5, 0);
  source.unknown = 0;
  source.byte_fallback = false;
  const auto tokenizer = text::make_tokenizer(std::move(source));
  const text::TokenId stop = 2;
  const auto vocabulary = std::make_shared<const TokenVocabulary>(
      make_token_vocabulary(*tokenizer, 100, std::span(&stop, 1)));
  TokenConstraint constraint(JsonSchema::compile(R"({"type":"string"})"), vocabulary);
  constraint.accept(3);
  const TokenMask& mask = constraint.allowed();
  EXPECT_TRUE(mask.allows(3));
  EXPECT_TRUE(mask.allows(4));
  for (const text::TokenId id : {1, 2, 5, 99}) EXPECT_FALSE(mask.allows(id)) << id;
}

}  // namespace
}  // namespace hone::infer::grammar
