// SPDX-License-Identifier: Apache-2.0
// Formats: which texts and tokens they admit, masks against the definition, and what their errors
// name.
#include "hone/infer/output_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/infer/grammar/grammar_support.h"

namespace hone::infer::grammar {
namespace {

using test::accepts;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StrEq;
using ::testing::UnorderedElementsAre;

// Control tokens, where no vocabulary is needed.
constexpr text::TokenId kOpenToken = 1000, kOtherToken = 1001;

OutputPart fixed(std::string text) { return {.text = std::move(text)}; }
OutputPart space_part() { return {.kind = OutputPart::Kind::Space}; }
OutputPart token_part(text::TokenId id) { return {.kind = OutputPart::Kind::Token, .token = id}; }
OutputPart value_part(std::string schema, std::string label = "", bool is_strict = true) {
  return {.kind = OutputPart::Kind::Value,
          .text = std::move(schema),
          .is_strict = is_strict,
          .label = std::move(label)};
}
OutputPart free_until(std::string text, bool may_end = false, text::TokenId id = -1) {
  return {.kind = OutputPart::Kind::Free, .text = std::move(text), .token = id, .may_end = may_end};
}
OutputPart free_until_token(text::TokenId id, bool may_end = false) {
  return free_until("", may_end, id);
}

OutputFormat format_of_value(std::string schema, std::string label = "", bool is_strict = true) {
  OutputFormat format;
  format.choices = {{value_part(std::move(schema), std::move(label), is_strict)}};
  return format;
}

// A piece of a text: bytes, or a control token.
struct FormatStep {
  FormatStep(std::string text) : bytes(std::move(text)) {}
  FormatStep(const char* text) : bytes(text) {}
  FormatStep(text::TokenId id) : token(id) {}
  std::string bytes;
  text::TokenId token = -1;
};

// "dead" if no text of the format begins so, "open" if one must go on, "may end" if it may end or
// go on, "complete" if nothing can follow.
std::string fate_of(const OutputFormat& format, const std::vector<FormatStep>& steps) {
  Matcher matcher(compile_output(format));
  Matcher::State state = matcher.start();
  for (const FormatStep& step : steps) {
    state = step.token >= 0 ? matcher.advance_token(state, step.token, false)
                            : matcher.advance(state, step.bytes);
    if (state.is_dead()) return "dead";
  }
  if (matcher.is_complete(state)) return "complete";
  return matcher.is_accepting(state) ? "may end" : "open";
}

// The small vocabulary, then pieces of formats, then control tokens.
struct FormatVocabulary {
  std::shared_ptr<const TokenVocabulary> tokens;
  text::TokenId first_piece = 0, open = 0, close = 0, other = 0;
};

FormatVocabulary make_format_vocabulary() {
  std::vector<std::string> tokens = test::small_vocabulary();
  FormatVocabulary out;
  const auto size = [&] { return static_cast<text::TokenId>(tokens.size()); };
  const text::TokenId stop = size() - 1;
  out.first_piece = size();
  for (const char* piece :
       {"</",      "think",       ">",     "</think>",  "</think>\n\n", "k>{",    "<call>",
        "ll>{\"a", "{\"name\": ", "\"get", "\"get\"",   "_all\"",       ", \"x",  "\": {",
        "}}",      "}\n</call>",  "}</",   "\n<call>",  "\n\n",         "  ",     " {",
        "]  ",     "].",          ", 1",   ", \"abc\"", "[1, ",         "\"ab\"]"}) {
    tokens.emplace_back(piece);
  }
  for (text::TokenId* id : {&out.open, &out.close, &out.other}) {
    *id = size();
    tokens.emplace_back();
  }
  out.tokens = std::make_shared<const TokenVocabulary>(std::move(tokens), std::span(&stop, 1));
  return out;
}

// Whether the token can follow, by a trial of its bytes.
bool can_follow(Matcher& matcher, const Matcher::State& state, const TokenVocabulary& vocabulary,
                text::TokenId id) {
  if (vocabulary.is_stop(id)) return matcher.is_accepting(state);
  if (vocabulary.bytes(id).empty()) return !matcher.advance_token(state, id, false).is_dead();
  const Matcher::Mark mark = matcher.mark();
  const bool follows = !matcher.advance(state, vocabulary.bytes(id)).is_dead();
  matcher.cut(mark);
  return follows;
}

// Formats of all kinds of parts, in various orders.
std::vector<OutputFormat> formats_to_try(const FormatVocabulary& vocabulary) {
  const char* const object = R"({"type":"object","properties":{"a":{"type":"integer"},
      "x":{"enum":["ab",12,null]}}})";
  const OutputPart get = fixed("{\"name\": \"get\", \"x\": ");
  const OutputPart get_all = fixed("{\"name\": \"get_all\", \"x\": ");
  std::vector<OutputFormat> formats(6);
  formats[0].before = {free_until("</think>"), space_part()};
  formats[0].choices = {{value_part(object)}};
  formats[1].before = {free_until_token(vocabulary.open, true)};
  formats[1].choices = {{get, value_part(object), fixed("}"), token_part(vocabulary.close)},
                        {get_all, value_part(object), fixed("}"), token_part(vocabulary.close)}};
  formats[1].between = {fixed("\n"), token_part(vocabulary.open)};
  formats[1].repeats = true;
  formats[2].choices = {{token_part(vocabulary.open), value_part(R"({"type":"string",
                            "maxLength":4})"),
                         token_part(vocabulary.close)},
                        {value_part(R"({"type":"array","items":{"type":"boolean"}})")}};
  formats[3].before = {free_until("{\"name\": ", true)};
  formats[3].before[0].only_at_start = true;
  formats[3].choices = {{fixed("\"get\", \"x\": "), value_part("true"), fixed("}")},
                        {fixed("\"get_all\"}")}};
  formats[4].before = {fixed("[")};
  formats[4].choices = {{value_part(R"({"type":"integer","minimum":0,"maximum":120})")},
                        {value_part(R"({"type":"string","pattern":"^[a-c]{1,3}$"})")}};
  formats[4].between = {fixed(", ")};
  formats[4].after = {fixed("]"), space_part(), fixed(".")};
  formats[4].repeats = true;
  formats[5].before = {free_until("<call>", false, vocabulary.open)};
  formats[5].choices = {{value_part(object), free_until("</call>")}};
  formats[5].between = {free_until("<call>", true)};
  formats[5].repeats = true;
  return formats;
}

TEST(OutputFormat, masks_equal_a_trial_of_every_token) {
  const FormatVocabulary vocabulary = make_format_vocabulary();
  const TokenVocabulary& tokens = *vocabulary.tokens;
  PhiloxStream random(23);
  const auto draw = [&](const std::vector<text::TokenId>& ids) {
    return ids[random.below(static_cast<std::uint32_t>(ids.size()))];
  };
  int states = 0, ended = 0;
  for (const OutputFormat& format : formats_to_try(vocabulary)) {
    const auto compiled = compile_output(format);
    for (int run = 0; run < 15; ++run) {
      TokenConstraint constraint(compiled, vocabulary.tokens);
      Matcher matcher(compiled);  // on its own
      Matcher::State state = matcher.start();
      std::string written;
      for (int i = 0; i < 60 && !constraint.is_complete(); ++i, ++states) {
        const TokenMask mask = constraint.allowed();
        std::vector<text::TokenId> allowed, pieces;
        for (text::TokenId id = 0; id < tokens.size(); ++id) {
          const bool follows = can_follow(matcher, state, tokens, id);
          ASSERT_EQ(mask.allows(id), follows) << "after " << written << ": " << id;
          if (!follows || tokens.is_stop(id)) continue;
          (id < vocabulary.first_piece ? allowed : pieces).push_back(id);
        }
        if (allowed.empty() && pieces.empty()) break;
        const bool takes_piece = allowed.empty() || (!pieces.empty() && random.below(3) != 0);
        const text::TokenId id = draw(takes_piece ? pieces : allowed);
        const std::string& bytes = tokens.bytes(id);
        constraint.accept(id);
        state =
            bytes.empty() ? matcher.advance_token(state, id, false) : matcher.advance(state, bytes);
        ASSERT_EQ(constraint.is_accepting(), matcher.is_accepting(state)) << written << bytes;
        ASSERT_EQ(constraint.is_complete(), matcher.is_complete(state)) << written << bytes;
        written += bytes.empty() ? concat("[", id, "]") : bytes;
      }
      ended += constraint.is_complete();
    }
  }
  EXPECT_GT(states, 1500);
  EXPECT_GT(ended, 10);
}

TEST(OutputFormat, a_free_part_ends_at_its_text_wherever_tokens_cut_it) {
  OutputFormat format;
  format.before = {free_until("</think>")};
  format.choices = {{fixed("ok")}};
  const auto compiled = compile_output(format);
  const std::string text = "a <</think</think>ok";
  for (std::size_t first = 1; first + 1 < text.size(); ++first) {
    for (std::size_t second = first + 1; second < text.size(); ++second) {
      const std::string last = text.substr(second);
      std::vector<std::string> tokens = {text.substr(0, first), text.substr(first, second - first),
                                         last, last.substr(0, last.size() - 1) + "!", "</s>"};
      const text::TokenId stop = 4;
      TokenConstraint constraint(compiled, std::make_shared<const TokenVocabulary>(
                                               std::move(tokens), std::span(&stop, 1)));
      for (const text::TokenId id : {0, 1, 2}) {
        ASSERT_TRUE(constraint.allowed().allows(id)) << first << ", " << second << ": " << id;
        if (id == 2) {
          EXPECT_FALSE(constraint.allowed().allows(3)) << first << ", " << second;
        }
        constraint.accept(id);
      }
      EXPECT_TRUE(constraint.is_complete()) << first << ", " << second;
    }
  }
}

// All texts of up to 8 letters, against std::string::find().
TEST(OutputFormat, a_free_part_ends_where_its_text_comes_first) {
  for (const std::string end : {"a", "ab", "bb", "aab", "abab", "aabaa", "abaabab"}) {
    OutputFormat format;
    format.before = {free_until(end)};
    format.choices = {{fixed("!")}};
    const auto compiled = compile_output(format);
    int found = 0;
    for (int size = 0; size <= 8; ++size) {
      for (int bits = 0; bits < 1 << size; ++bits) {
        std::string text;
        for (int i = 0; i < size; ++i) text += (bits >> i & 1) != 0 ? 'b' : 'a';
        const std::size_t at = text.find(end);
        const bool ends = at != text.npos && at + end.size() == text.size();
        ASSERT_EQ(accepts(compiled, text + "!"), ends) << end << " in " << text;
        found += ends;
      }
    }
    EXPECT_GT(found, 1) << end;
  }
}

TEST(OutputFormat, what_counts_only_at_the_start_follows_white_space_at_most) {
  OutputFormat format;
  format.before = {free_until("{\"n\":", true)};
  format.before[0].only_at_start = true;
  format.choices = {{value_part(R"({"type":"integer"})")}};
  format.after = {fixed("}")};
  for (const auto& [text, fate] : std::vector<std::pair<const char*, const char*>>{
           {"", "may end"},
           {" \n", "may end"},
           {"{\"n\"", "may end"},
           {"{\"n\":", "open"},
           {"{\"n\":12", "open"},
           {"{\"n\":12}", "complete"},
           {" \n\t\r{\"n\":1}", "complete"},
           {"{\"n\":x", "dead"},
           {"{\"n\":1}x", "dead"},
           // Other text is free to its end, and may have the words later.
           {"x{\"n\":x", "may end"},
           {"{x{\"n\":x", "may end"},
           {"{ {\"n\":x", "may end"},
           {"{\"m\":1}{\"n\":x", "may end"}}) {
    EXPECT_EQ(fate_of(format, {text}), fate) << text;
  }
}

TEST(OutputFormat, text_may_end_in_a_free_part_that_allows_it) {
  OutputFormat format;
  format.choices = {{fixed("x")}};
  for (const bool may_end : {false, true}) {
    const char* const within = may_end ? "may end" : "open";
    format.before = {free_until("</t>", may_end)};
    for (const char* text : {"", "abc", "</t", "\xff\xfe<"}) {
      EXPECT_EQ(fate_of(format, {text}), within) << text;
    }
    EXPECT_EQ(fate_of(format, {"a</t>"}), "open");
    EXPECT_EQ(fate_of(format, {"a</t>x"}), "complete");
    EXPECT_EQ(fate_of(format, {"a</t>y"}), "dead");
    const FormatVocabulary vocabulary = make_format_vocabulary();
    TokenConstraint constraint(compile_output(format), vocabulary.tokens);
    const text::TokenId stop = vocabulary.tokens->stop_ids()[0];
    for (const char byte : std::string("a</t>")) {
      EXPECT_EQ(constraint.allowed().allows(stop), may_end);
      EXPECT_TRUE(constraint.allowed().allows(vocabulary.other));
      constraint.accept(byte);
    }
    EXPECT_EQ(constraint.allowed().count(), 1);
    EXPECT_TRUE(constraint.allowed().allows('x'));
  }
}

TEST(OutputFormat, choices_repeat_with_what_is_between_and_end_with_what_is_after) {
  OutputFormat list;
  list.before = {fixed("[")};
  list.choices = {{fixed("a")}, {fixed("b")}};
  list.between = {fixed(", ")};
  list.after = {fixed("]")};
  for (const bool repeats : {false, true}) {
    list.repeats = repeats;
    EXPECT_EQ(fate_of(list, {"[a]"}), "complete");
    EXPECT_EQ(fate_of(list, {"[a, b, a]"}), repeats ? "complete" : "dead");
    EXPECT_EQ(fate_of(list, {"[b, "}), repeats ? "open" : "dead");
    for (const char* text : {"[]", "[a, ]", "[a,b]", "[ab]", "[c]", "a", "[a]]"}) {
      EXPECT_EQ(fate_of(list, {text}), "dead") << text;
    }
  }
  OutputFormat bare;  // nothing around and between
  bare.choices = {{fixed("ab")}};
  EXPECT_EQ(fate_of(bare, {"ab"}), "complete");
  bare.repeats = true;
  EXPECT_EQ(fate_of(bare, {""}), "open");
  EXPECT_EQ(fate_of(bare, {"aba"}), "open");
  EXPECT_EQ(fate_of(bare, {"abab"}), "may end");
  bare.between = {fixed(",")};
  EXPECT_EQ(fate_of(bare, {"ab"}), "may end");
  EXPECT_EQ(fate_of(bare, {"ab,"}), "open");
  EXPECT_EQ(fate_of(bare, {"ab,ab"}), "may end");
}

TEST(OutputFormat, choices_with_a_common_beginning_go_on_together) {
  OutputFormat format;
  format.choices = {
      {fixed("{\"name\": \"get\", \"x\": "), value_part(R"({"type":"integer"})"), fixed("}")},
      {fixed("{\"name\": \"get_all\"}")}};
  EXPECT_EQ(fate_of(format, {"{\"name\": \"get"}), "open");
  EXPECT_EQ(fate_of(format, {"{\"name\": \"get\", \"x\": -7}"}), "complete");
  EXPECT_EQ(fate_of(format, {"{\"name\": \"get_all\"}"}), "complete");
  EXPECT_EQ(fate_of(format, {"{\"name\": \"get_all\", "}), "dead");
  EXPECT_EQ(fate_of(format, {"{\"name\": \"get\"}"}), "dead");
  format.choices = {{fixed("a")}, {fixed("ab")}, {value_part(R"({"enum":[1,12]})")}};
  EXPECT_EQ(fate_of(format, {"a"}), "may end");
  EXPECT_EQ(fate_of(format, {"ab"}), "complete");
  EXPECT_EQ(fate_of(format, {"1"}), "may end");
  EXPECT_EQ(fate_of(format, {"12"}), "complete");
}

TEST(OutputFormat, control_tokens_end_free_parts_and_break_their_texts) {
  OutputFormat format;
  format.before = {free_until_token(kOpenToken)};
  format.choices = {{fixed("x")}};
  EXPECT_EQ(fate_of(format, {"text"}), "open");
  EXPECT_EQ(fate_of(format, {kOtherToken}), "open");
  EXPECT_EQ(fate_of(format, {kOpenToken, "x"}), "complete");
  EXPECT_EQ(fate_of(format, {"a", kOtherToken, "b", kOpenToken, "x"}), "complete");
  EXPECT_EQ(fate_of(format, {kOpenToken, kOpenToken}), "dead");
  EXPECT_EQ(fate_of(format, {kOpenToken, "y"}), "dead");
  EXPECT_EQ(fate_of(format, {kOpenToken, "x", kOtherToken}), "dead");
  format.before = {free_until("<go>", false, kOpenToken)};  // either of them
  EXPECT_EQ(fate_of(format, {"a<go>x"}), "complete");
  EXPECT_EQ(fate_of(format, {"a", kOpenToken, "x"}), "complete");
  EXPECT_EQ(fate_of(format, {"<g", kOpenToken, "x"}), "complete");
  EXPECT_EQ(fate_of(format, {"<g", kOtherToken, "o>x"}), "open");
  EXPECT_EQ(fate_of(format, {"<g", kOtherToken, "<go>x"}), "complete");
  EXPECT_EQ(fate_of(format, {"<go>", kOtherToken}), "dead");
}

TEST(OutputFormat, a_token_part_takes_only_its_token) {
  const FormatVocabulary vocabulary = make_format_vocabulary();
  OutputFormat format;
  format.choices = {{fixed("a"), token_part(vocabulary.open), token_part(vocabulary.close)}};
  TokenConstraint constraint(compile_output(format), vocabulary.tokens);
  EXPECT_FALSE(constraint.allowed().allows(vocabulary.open));
  constraint.accept('a');
  for (const text::TokenId id : {vocabulary.open, vocabulary.close}) {
    EXPECT_EQ(constraint.allowed().count(), 1);
    EXPECT_TRUE(constraint.allowed().allows(id));
    EXPECT_FALSE(constraint.is_accepting());
    constraint.accept(id);
  }
  EXPECT_TRUE(constraint.is_complete());
  EXPECT_THAT(
      hone::test::refusal([&] { constraint.accept(vocabulary.open); }, ErrorCategory::Internal),
      HasSubstr("mask allows"));
}

TEST(OutputFormat, a_token_counts_by_its_id_whatever_its_text_is) {
  const text::TokenId call = 1, stop = 4;
  const auto vocabulary = std::make_shared<const TokenVocabulary>(
      std::vector<std::string>{"x", "<call>", "<", "call>", "</s>"}, std::span(&stop, 1));
  OutputFormat format;
  format.choices = {{token_part(call), fixed("x")}};
  TokenConstraint fixed_token(compile_output(format), vocabulary);
  EXPECT_EQ(fixed_token.allowed().count(), 1);
  EXPECT_TRUE(fixed_token.allowed().allows(call));
  fixed_token.accept(call);
  EXPECT_TRUE(fixed_token.allowed().allows(0));
  fixed_token.accept(0);
  EXPECT_TRUE(fixed_token.is_complete());
  format.before = {free_until_token(call)};
  format.choices = {{fixed("x")}};
  TokenConstraint free_token(compile_output(format), vocabulary);
  for (const text::TokenId id : {2, 3, 0}) {  // spelled by others, it is text
    EXPECT_TRUE(free_token.allowed().allows(id));
    free_token.accept(id);
  }
  EXPECT_FALSE(free_token.is_complete());
  free_token.accept(call);
  EXPECT_EQ(free_token.allowed().count(), 1);
  free_token.accept(0);
  EXPECT_TRUE(free_token.is_complete());
}

TEST(OutputFormat, space_is_up_to_four_spaces_and_line_breaks) {
  OutputFormat format;
  format.choices = {{fixed("a"), space_part(), fixed("b")}};
  for (const char* text : {"ab", "a b", "a\nb", "a \n \nb"}) {
    EXPECT_EQ(fate_of(format, {text}), "complete") << text;
  }
  for (const char* text : {"a     ", "a\n\n\n\n\n", "a\t", " ab"}) {
    EXPECT_EQ(fate_of(format, {text}), "dead") << text;
  }
}

TEST(OutputFormat, space_may_come_before_a_token_a_free_part_and_the_end) {
  OutputFormat format;
  format.choices = {{fixed("a"), space_part(), token_part(kOpenToken), fixed("b")}};
  EXPECT_EQ(fate_of(format, {"a", kOpenToken, "b"}), "complete");
  EXPECT_EQ(fate_of(format, {"a ", kOpenToken, "b"}), "complete");
  EXPECT_EQ(fate_of(format, {"a \n \n", kOpenToken, "b"}), "complete");
  EXPECT_EQ(fate_of(format, {"a ", kOtherToken}), "dead");
  format.choices = {{fixed("a"), space_part(), free_until_token(kOpenToken, true), fixed("b")}};
  for (const char* text : {"a", "a ", "a\n\n", "a x", "a      x"}) {
    EXPECT_EQ(fate_of(format, {text}), "may end") << text;
    EXPECT_EQ(fate_of(format, {text, kOpenToken, "b"}), "complete") << text;
    EXPECT_EQ(fate_of(format, {text, kOtherToken, kOpenToken, "b"}), "complete") << text;
  }
  format.choices = {{fixed("a"), space_part()}};
  for (const char* text : {"a", "a ", "a\n\n", "a    "}) {
    EXPECT_THAT(fate_of(format, {text}), AnyOf(StrEq("may end"), StrEq("complete"))) << text;
  }
  const FormatVocabulary vocabulary = make_format_vocabulary();
  TokenConstraint constraint(compile_output(format), vocabulary.tokens);
  for (const char byte : std::string("a    ")) constraint.accept(byte);
  EXPECT_TRUE(constraint.allowed().allows(vocabulary.tokens->stop_ids()[0]));
}

TEST(OutputFormat, numbers_and_literals_end_where_a_token_or_free_text_may_follow) {
  for (const char* schema : {R"({"type":"integer"})", R"({"enum":[1,12,123]})"}) {
    OutputFormat format;
    format.choices = {{value_part(schema), token_part(kOpenToken)}};
    EXPECT_EQ(fate_of(format, {"1", kOpenToken}), "complete") << schema;
    EXPECT_EQ(fate_of(format, {"12", kOpenToken}), "complete") << schema;
    EXPECT_EQ(fate_of(format, {kOpenToken}), "dead") << schema;
    format.choices = {{value_part(schema), free_until("</s>", true)}};
    EXPECT_EQ(fate_of(format, {"12"}), "may end") << schema;
    EXPECT_EQ(fate_of(format, {"12x"}), "may end") << schema;
    EXPECT_EQ(fate_of(format, {"12</s>"}), "complete") << schema;
    format.choices = {{value_part(schema), free_until_token(kOpenToken)}};
    EXPECT_EQ(fate_of(format, {"12", kOtherToken, kOpenToken}), "complete") << schema;
    const FormatVocabulary vocabulary = make_format_vocabulary();
    format.choices = {{value_part(schema), token_part(vocabulary.close)}};
    TokenConstraint constraint(compile_output(format), vocabulary.tokens);
    constraint.accept('1');
    EXPECT_TRUE(constraint.allowed().allows(vocabulary.close)) << schema;
    EXPECT_TRUE(constraint.allowed().allows('2')) << schema;
    EXPECT_FALSE(constraint.allowed().allows(vocabulary.other)) << schema;
  }
}

struct ClosedCase {
  const char* schema;
  std::vector<const char*> good, bad;
};

// The good texts that a Value refuses, and the bad ones that it accepts.
std::vector<std::string> misjudged_values(const ClosedCase& cases) {
  const auto compiled = compile_output(format_of_value(cases.schema));
  std::vector<std::string> texts;
  for (const char* text : cases.good) {
    if (!accepts(compiled, text)) texts.emplace_back(text);
  }
  for (const char* text : cases.bad) {
    if (accepts(compiled, text)) texts.emplace_back(text);
  }
  return texts;
}

TEST(OutputFormat, objects_of_a_value_have_only_their_listed_properties) {
  for (const ClosedCase& cases : std::vector<ClosedCase>{
           {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{}}})",
            {"{}", R"({"a":1})", R"({"a":1,"b":[]})"},
            {R"({"c":1})", R"({"a":1,"c":1})", R"({"a":1,"a":1})"}},
           {R"({"properties":{"a":{}}})", {"3", "[]", R"({"a":1})"}, {R"({"b":1})"}},
           {R"({"type":"object","properties":{"a":{}},"required":["z"]})",
            {R"({"z":[1]})", R"({"a":1,"z":2})"},
            {R"({"a":1})", R"({"z":1,"y":1})"}},
           {R"({"type":"object","properties":{"o":{"type":"object","properties":{"x":{}}}}})",
            {R"({"o":{"x":1}})", R"({"o":{}})"},
            {R"({"o":{"y":1}})", R"({"o":{"x":1},"p":1})"}},
           {R"({"type":"array","items":{"type":"object","properties":{"x":{}}},
               "prefixItems":[{"type":"object","properties":{"y":{}}}]})",
            {R"([{"y":1},{"x":1}])"},
            {R"([{"x":1}])", R"([{"y":1},{"x":1,"z":1}])"}},
           {R"({"anyOf":[{"type":"object","properties":{"a":{}}},{"type":"null"}]})",
            {"null", R"({"a":1})"},
            {R"({"b":1})", R"({"a":1,"b":1})"}},
           {R"({"oneOf":[{"type":"object","properties":{"a":{"const":1}},"required":["a"]},
                         {"type":"object","properties":{"a":{"const":2}},"required":["a"]}]})",
            {R"({"a":1})", R"({"a":2})"},
            {R"({"a":1,"b":1})"}},
           {R"({"$ref":"#/$defs/p","$defs":{"p":{"type":"object","properties":{
               "a":{"$ref":"#/$defs/p"}}}}})",
            {"{}", R"({"a":{"a":{}}})"},
            {R"({"b":1})", R"({"a":{"b":1}})"}}}) {
    EXPECT_THAT(misjudged_values(cases), IsEmpty()) << cases.schema;
  }
}

TEST(OutputFormat, objects_of_a_value_are_open_where_a_schema_says_so_or_others_add_to_it) {
  for (const ClosedCase& cases : std::vector<ClosedCase>{
           {R"({"type":"object"})", {"{}", R"({"b":1,"c":{"d":1}})"}, {"[]"}},
           {R"({"type":"object","required":["z"]})", {R"({"z":1,"y":2})"}, {"{}"}},
           {R"({"type":"object","properties":{"a":{}},"additionalProperties":true})",
            {R"({"a":1,"b":2})"},
            {}},
           {R"({"type":"object","properties":{"a":{}},"additionalProperties":{"type":"integer"}})",
            {R"({"a":[],"b":2})"},
            {R"({"a":[],"b":[]})"}},
           {R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}}},
                         {"properties":{"b":{"type":"integer"}}}]})",
            {R"({"a":1,"b":2})", R"({"a":1,"b":2,"c":[]})"},
            {R"({"a":[]})", R"({"b":[]})"}},
           {R"({"type":"object","properties":{"a":{"type":"integer"}},
               "anyOf":[{"required":["a"]},{"required":["b"]}]})",
            {R"({"a":1,"c":2})", R"({"b":1})"},
            {"{}", R"({"c":1})"}},
           // The same definition, alone and in an intersection.
           {R"({"type":"object","properties":{"x":{"$ref":"#/$defs/p"},
               "y":{"allOf":[{"$ref":"#/$defs/p"},{"properties":{"b":{"type":"integer"}}}]}},
               "$defs":{"p":{"type":"object","properties":{"a":{"type":"integer"}}}}})",
            {R"({"x":{"a":1},"y":{"a":1,"b":2}})"},
            {R"({"x":{"a":1,"b":2}})", R"({"y":{"a":1,"b":[]}})"}}}) {
    EXPECT_THAT(misjudged_values(cases), IsEmpty()) << cases.schema;
  }
  // Outside of formats, a schema means what it says.
  EXPECT_TRUE(accepts(R"({"type":"object","properties":{"a":{}}})", R"({"a":1,"b":2})"));
}

std::string refused_value(const char* schema, const std::string& label, ErrorCategory category,
                          bool is_strict = true) {
  return hone::test::refusal([&] { compile_output(format_of_value(schema, label, is_strict)); },
                             category);
}

TEST(OutputFormat, errors_name_the_label_of_the_value) {
  const std::string label = "tools[0].parameters";
  for (const auto& [schema, category, words] :
       std::vector<std::tuple<const char*, ErrorCategory, const char*>>{
           {R"({"not":{}})", ErrorCategory::Unsupported,
            "At tools[0].parameters: The keyword \"not\""},
           {R"({"type":"object","properties":{"x":{"format":"iri"}}})", ErrorCategory::Unsupported,
            "At tools[0].parameters/properties/x: The keyword \"format\""},
           {R"s({"properties":{"x":{"pattern":"(?=y)"}}})s", ErrorCategory::Unsupported,
            "At tools[0].parameters/properties/x: The keyword \"pattern\""},
           {R"({"$ref":"#/$defs/n","$defs":{"n":{"not":{}}}})", ErrorCategory::Unsupported,
            "At tools[0].parameters/$defs/n: The keyword \"not\""},
           {R"({"oneOf":[{"type":"null"},{}]})", ErrorCategory::Unsupported,
            "At tools[0].parameters: The keyword \"oneOf\""},
           {R"({"$ref":"#"})", ErrorCategory::Unsupported, "At tools[0].parameters: "},
           {R"({"properties":{"x":{"minLength":-1}}})", ErrorCategory::InvalidArgument,
            "At tools[0].parameters/properties/x/minLength: "},
           {R"({"properties":{"x":{"pattern":"("}}})", ErrorCategory::InvalidArgument,
            "tools[0].parameters/properties/x"},
           {"false", ErrorCategory::InvalidArgument, "tools[0].parameters: No value satisfies"},
           {"3", ErrorCategory::InvalidArgument, "tools[0].parameters"},
           {"{", ErrorCategory::CorruptFile, "tools[0].parameters: This is not valid JSON"},
           {R"({"a":1,"a":2})", ErrorCategory::CorruptFile, "\"a\" occurs twice"}}) {
    EXPECT_THAT(refused_value(schema, label, category), HasSubstr(words)) << schema;
  }
  EXPECT_THAT(refused_value(R"({"not":{}})", "", ErrorCategory::Unsupported),
              HasSubstr("At the root: "));
  // A label is never too long.
  EXPECT_THAT(refused_value(R"({"not":{}})", std::string(1000, 'l'), ErrorCategory::Unsupported),
              HasSubstr("\"not\""));
  OutputFormat format;
  format.choices = {{value_part("true", "tools[0]")}, {value_part(R"({"not":{}})", "tools[1]")}};
  EXPECT_THAT(hone::test::refusal([&] { compile_output(format); }, ErrorCategory::Unsupported),
              HasSubstr("At tools[1]: "));
}

TEST(OutputFormat, keywords_are_left_out_and_named_where_a_value_is_not_strict) {
  const char* const schema = R"({"type":"object","properties":{"x":{"type":"string","format":"iri"},
      "n":{"oneOf":[{"type":"integer"},{"type":"number"}]}}})";
  OutputFormat format;
  format.before = {value_part(schema, "first", false)};
  format.choices = {{value_part(R"({"type":"null","not":{}})", "second", false)}};
  std::vector<std::string> ignored = {"kept"};
  const auto compiled = compile_output(format, &ignored);
  EXPECT_THAT(ignored, UnorderedElementsAre("kept", "first/properties/x/format",
                                            "first/properties/n/oneOf", "second/not"));
  EXPECT_TRUE(accepts(compiled, R"({"x":"any","n":1.5}null)"));
  EXPECT_FALSE(accepts(compiled, R"({"x":1}null)"));
  EXPECT_TRUE(accepts(compile_output(format), "{}null"));  // nobody wants to know
  format.choices[0][0].is_strict = true;
  EXPECT_THAT(
      hone::test::refusal([&] { compile_output(format, &ignored); }, ErrorCategory::Unsupported),
      HasSubstr("At second: The keyword \"not\""));
  EXPECT_THAT(refused_value(R"({"minLength":-1})", "l", ErrorCategory::InvalidArgument, false),
              HasSubstr("l/minLength"));
}

TEST(OutputFormat, malformed_formats_are_refused) {
  const OutputPart without_text = {};
  const OutputPart without_schema = {.kind = OutputPart::Kind::Value};
  const OutputPart without_token = {.kind = OutputPart::Kind::Token};
  const OutputPart without_end = {.kind = OutputPart::Kind::Free};
  OutputFormat fine;
  fine.choices = {{fixed("x")}};
  fine.repeats = true;
  EXPECT_EQ(hone::test::error_of([&] { compile_output(fine); }), "no error");
  std::vector<OutputFormat> formats(4, fine);
  formats[0].choices.clear();
  formats[1].choices.emplace_back();
  formats[2].choices.push_back({space_part(), fixed("x")});
  formats[3].choices.push_back({free_until("x"), fixed("x")});
  for (const OutputPart& part : {without_text, without_schema, without_token, without_end}) {
    for (auto place : {&OutputFormat::before, &OutputFormat::between, &OutputFormat::after}) {
      formats.push_back(fine);
      (formats.back().*place).push_back(part);
    }
    formats.push_back(fine);
    formats.back().choices[0].push_back(part);
  }
  for (std::size_t i = 0; i < formats.size(); ++i) {
    EXPECT_THAT(hone::test::refusal([&] { compile_output(formats[i]); }),
                HasSubstr("output format"))
        << i;
  }
}

TEST(OutputFormat, output_can_be_taken_back_in_a_free_part) {
  const FormatVocabulary vocabulary = make_format_vocabulary();
  OutputFormat format;
  format.before = {free_until("</think>")};
  format.choices = {{value_part(R"({"type":"integer"})")}};
  TokenConstraint constraint(compile_output(format), vocabulary.tokens);
  const auto put = [&](const std::string& bytes) {
    for (const char byte : bytes) {
      ASSERT_TRUE(constraint.allowed().allows(byte)) << bytes;
      constraint.accept(byte);
    }
  };
  put("a </th");
  const Matcher::State before = constraint.state();
  const TokenMask mask = constraint.allowed();
  put("ink>12");
  EXPECT_TRUE(constraint.is_accepting());
  constraint.restore(before);
  for (text::TokenId id = 0; id < vocabulary.tokens->size(); ++id) {
    EXPECT_EQ(constraint.allowed().allows(id), mask.allows(id)) << id;
  }
  put("x");  // another way: the text of the part must begin again
  put("ink>12");
  EXPECT_FALSE(constraint.is_accepting());
  put("</think>7");
  EXPECT_TRUE(constraint.is_accepting());
  constraint.restore(before);
  constraint.accept(vocabulary.other);
  put("ink>12");
  EXPECT_FALSE(constraint.is_accepting());
  constraint.restore(before);
  put("ink>");
  EXPECT_TRUE(constraint.allowed().allows('7'));
  EXPECT_FALSE(constraint.allowed().allows('x'));
  EXPECT_FALSE(constraint.allowed().allows(vocabulary.other));
}

std::string enum_of_strings(int count, std::size_t common, std::size_t own) {
  std::string list;
  for (int i = 0; i < count; ++i) {
    list += concat(i == 0 ? "\"" : ",\"", std::string(common, 'c'), 1000 + i, std::string(own, 'o'),
                   "\"");
  }
  return concat("{\"enum\":[", list, "]}");
}

TEST(OutputFormat, memory_grows_with_what_is_compiled) {
  const auto bytes_of = [](const OutputFormat& format) {
    return memory_bytes(*compile_output(format));
  };
  const std::size_t least = bytes_of(format_of_value(R"({"type":"null"})"));
  EXPECT_GT(least, 0u);
  EXPECT_GT(bytes_of(format_of_value(enum_of_strings(10, 0, 10))), least);
  EXPECT_GT(bytes_of(format_of_value(enum_of_strings(100, 0, 10))),
            5 * bytes_of(format_of_value(enum_of_strings(10, 0, 10))));
  EXPECT_GT(bytes_of(format_of_value(R"({"type":"string","format":"uri"})")), least + 1000);
  EXPECT_GT(bytes_of(format_of_value(concat(R"({"required":[")", std::string(5000, 'n'), "\"]}"))),
            least + 5000);
  OutputFormat format = format_of_value(R"({"type":"null"})");
  format.after = {fixed(std::string(5000, 'x'))};
  EXPECT_GT(bytes_of(format), least + 5000);
}

TEST(OutputFormat, equal_rules_share_one_table) {
  const std::string list = enum_of_strings(200, 920, 100);  // strings of 1 KB
  std::string properties[2];
  for (int i = 0; i < 20; ++i) {
    const std::string property = concat("\"p", i, "\":{\"$ref\":\"#/$defs/e\"}");
    if (i == 0) properties[0] = property;
    properties[1] += concat(i == 0 ? "" : ",", property);
  }
  std::size_t bytes[2];
  for (int i = 0; i < 2; ++i) {
    const auto compiled = compile_output(format_of_value(concat(
        R"({"type":"object","properties":{)", properties[i], R"(},"$defs":{"e":)", list, "}}")));
    bytes[i] = memory_bytes(*compiled);
    EXPECT_TRUE(accepts(
        compiled, concat(R"({"p0":")", std::string(920, 'c'), 1123, std::string(100, 'o'), "\"}")));
    EXPECT_FALSE(accepts(compiled, R"({"p0":"cc"})"));
  }
  EXPECT_LT(bytes[1], std::size_t{1} << 20);
  EXPECT_LT(bytes[1] - bytes[0], 20'000u);  // names and references only
}

}  // namespace
}  // namespace hone::infer::grammar
