// SPDX-License-Identifier: Apache-2.0
// Requests with a JSON schema on the real model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/core/file/json_io.h"
#include "hone/infer/output_format.h"
#include "tests/infer/engine_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

using test::open_stories;
using test::run_request;
using ::testing::HasSubstr;

const char* const kCard = R"({"type":"object","properties":{
    "name":{"type":"string","minLength":1,"maxLength":20},
    "age":{"type":"integer","minimum":1,"maximum":120},
    "weight":{"type":"number","exclusiveMinimum":0,"maximum":99.5},
    "pets":{"type":"array","maxItems":3,"items":{"enum":["cat","dog",null]}},
    "home":{"anyOf":[{"type":"null"},{"type":"object","properties":{"town":{"type":"string",
        "maxLength":12}},"required":["town"],"additionalProperties":false}]}},
  "required":["name","age","weight","pets","home"],"additionalProperties":false})";

// Written out for this schema alone.
void expect_card(const Json& card) {
  ASSERT_TRUE(card.is_object());
  const auto points = [](const std::string& text) {
    return std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
  };
  EXPECT_EQ(card.size(), 5u);
  const auto name = card.at("name").get<std::string>();
  EXPECT_TRUE(points(name) >= 1 && points(name) <= 20);
  EXPECT_TRUE(card.at("age").is_number_integer());
  EXPECT_TRUE(card.at("age") >= 1 && card.at("age") <= 120);
  EXPECT_TRUE(card.at("weight") > 0 && card.at("weight") <= 99.5);
  EXPECT_TRUE(card.at("pets").is_array() && card.at("pets").size() <= 3);
  for (const Json& pet : card.at("pets")) {
    EXPECT_TRUE(pet == "cat" || pet == "dog" || pet.is_null());
  }
  const Json& home = card.at("home");
  EXPECT_TRUE(home.is_null() || (home.size() == 1 && points(home.at("town")) <= 12));
}

Request card_request(Engine& engine, std::uint64_t seed) {
  Request request;
  request.tokens = engine.tokenizer().encode("Tim wrote a card:");
  request.sampling = {.temperature = 1, .seed = seed};
  request.max_tokens = 400;
  request.json_schema = kCard;
  return request;
}

TEST(SchemaStories, a_hundred_answers_sampled_at_temperature_one_satisfy_the_schema) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto engine = open_stories(model);
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto got = run_request(*engine, card_request(*engine, seed));
    ASSERT_EQ(got->last().finished, FinishReason::Stop) << got->text << got->last().error;
    expect_card(parse_json(got->text, "output"));
  }
}

TEST(SchemaStories, the_schema_stands_above_bias_penalties_and_greed) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto engine = open_stories(model);
  Request request = card_request(*engine, 1);
  request.sampling.temperature = 0;
  request.sampling.repetition_penalty = 1.5f;
  for (TokenId id = 300; id < 400; ++id) request.sampling.logit_bias.push_back({id, 100});
  const auto got = run_request(*engine, request);
  ASSERT_EQ(got->last().finished, FinishReason::Stop) << got->last().error;
  expect_card(parse_json(got->text, "output"));
}

TEST(SchemaStories, a_cut_text_ends_by_length_and_others_are_as_before) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto engine = open_stories(model);
  Request plain = card_request(*engine, 7);
  plain.json_schema.clear();
  plain.max_tokens = 20;
  const auto before = run_request(*engine, plain)->tokens;
  Request cut = card_request(*engine, 7);
  cut.max_tokens = 5;
  const auto got = run_request(*engine, cut);
  EXPECT_EQ(got->last().finished, FinishReason::Length);
  EXPECT_TRUE(got->text.starts_with("{\"n")) << got->text;
  EXPECT_EQ(run_request(*engine, plain)->tokens, before);
}

TEST(SchemaStories, requests_that_cannot_be_kept_are_refused_at_submit) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto engine = open_stories(model);
  const auto problem = [&](const std::function<void(Request&)>& change) {
    Request request = card_request(*engine, 0);
    change(request);
    return hone::test::error_of([&] { run_request(*engine, request); });
  };
  EXPECT_THAT(problem([](Request& r) { r.json_schema = R"({"not":{}})"; }),
              HasSubstr("\"not\" cannot be enforced"));
  EXPECT_THAT(problem([](Request& r) { r.json_schema = "{"; }), HasSubstr("not valid JSON"));
  EXPECT_THAT(problem([](Request& r) { r.ignore_eos = true; }), HasSubstr("cannot be ignored"));
}

TEST(SchemaStories, a_stop_string_ends_the_text_and_a_minimum_of_tokens_does_not_hold_it_open) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto engine = open_stories(model);
  Request request = card_request(*engine, 3);
  const auto whole = run_request(*engine, request);
  ASSERT_EQ(whole->last().cause->kind, StopCause::Kind::Schema);
  Request formatted = request;
  OutputFormat format;
  format.choices = {{{.kind = OutputPart::Kind::Value, .text = request.json_schema}}};
  formatted.json_schema.clear();
  formatted.grammar = compile_output(format);
  formatted.min_tokens = request.max_tokens;
  EXPECT_EQ(run_request(*engine, formatted)->text, whole->text);
  request.stop = {":"};
  const auto cut = run_request(*engine, request);
  EXPECT_EQ(cut->last().cause->kind, StopCause::Kind::String);
  EXPECT_EQ(cut->text, whole->text.substr(0, whole->text.find(':')));
}

}  // namespace
}  // namespace hone::infer
