// SPDX-License-Identifier: Apache-2.0
// Mutated JSON schemas, formats and patterns: each throws one hone::Error, or compiles, and then
// random walks find that its masks allow what the automaton can read, and something until the text
// is complete.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/infer/output_format.h"
#include "hone/text/unicode/utf8.h"
#include "tests/fuzz/mutation_support.h"
#include "tests/infer/grammar/grammar_support.h"

namespace hone::infer::grammar {
namespace {

using hone::test::draw_below;

constexpr double kMutationSeconds = 1 * hone::test::kSlowdown;  // of the processor
// The construction of the table of a pattern takes more than the table.
constexpr std::int64_t kPatternBytes = std::int64_t{128} << 20;

const char* const kAllKeywords =
    R"({"$ref":"#/$defs/a","$defs":{"a":{"type":["object","array","number"],
  "properties":{"n":{"type":"integer","minimum":-5,"maximum":12e1},"s":{"type":"string",
  "minLength":1,"maxLength":3},"b":{"enum":[1,"x",null,{"k":[]}]},"r":{"$ref":"#/$defs/a"}},
  "required":["n"],"additionalProperties":{"const":true},"items":{"$ref":"#/$defs/b"},
  "prefixItems":[true,{"type":"null"}],"minItems":1,"maxItems":4},"b":{"anyOf":[{"type":"string"},
  {"type":"number","exclusiveMinimum":0.25},{"$ref":"#/$defs/a"}],"maxLength":9}}})";
const char* const kFreeForm = R"({"type":["object","string"],"additionalProperties":{"anyOf":[
  {"type":"string","minLength":2,"maxLength":40},{"$ref":"#"},true]},"properties":{"a\n":true}})";
const char* const kAlternatives = R"({"anyOf":[{"type":"array","items":{"type":["string","null"]},
  "maxItems":300},{"type":"array","items":{"type":"string","maxLength":2}},{"type":"object",
  "properties":{"id":{"const":"\u00e9\\\""}},"required":["id"],"additionalProperties":false},
  {"type":"object","required":["x","id"]},{"enum":["aa","ab",-0.5e-3,12345678901234567890]}]})";
const char* const kAllOf = R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer",
  "minimum":0},"b":{"$ref":"#/$defs/s"}}},{"required":["a"],"properties":{"a":{"maximum":99,
  "multipleOf":1},"c":{"allOf":[{"type":["string","array"]},{"minLength":2,"maxItems":2},
  {"anyOf":[{"maxLength":5},{"minItems":1}]}]}}},{"additionalProperties":{"type":["integer",
  "string","array","null"]}}],"$defs":{"s":{"maxLength":6,"allOf":[{"type":"string"},
  {"pattern":"^[a-f]"},{"pattern":"x$"}]}}})";
// Told apart by constants, counts, ranges and types, nested and recursive.
const char* const kOneOf = R"({"oneOf":[{"type":"object","properties":{"kind":{"const":"cat"},
  "lives":{"type":"integer","minimum":1,"maximum":9}},"required":["kind"]},{"type":"object",
  "properties":{"kind":{"const":"dog"},"tail":{"$ref":"#"}},"required":["kind"],
  "additionalProperties":false},{"type":"object","properties":{"kind":{"enum":["list","tree"]},
  "parts":{"type":"array","items":{"oneOf":[{"$ref":"#"},{"type":"null"},{"type":"integer",
  "maximum":4},{"type":"integer","minimum":5}]},"minItems":1,"maxItems":3}},
  "required":["kind","parts"]},{"type":"array","prefixItems":[{"const":1}],"minItems":1,
  "maxItems":2},{"type":"array","maxItems":0}]})";
const char* const kPatterns = R"({"type":"object","properties":{"id":{"type":"string",
  "pattern":"^[A-Z]{2}-\\d{3,5}$"},"free":{"type":"string","pattern":"ab+c|\\u00e9[^\\s\\d]?",
  "minLength":3,"maxLength":9},"u":{"type":["string","null"],"maxLength":4,
  "pattern":"^(\\u0041|\\u{1F600}|\\ud83d\\ude01|[\\x61-\\x63\\n\\\\\"])+$"},"two":{"type":"string",
  "pattern":"^[^a-c]*$","allOf":[{"pattern":"[\\w.-]$"},{"minLength":1}]}},
  "required":["id","free","u","two"],"additionalProperties":false})";
const char* const kTimes = R"({"type":"array","prefixItems":[{"type":"string","format":"date"},
  {"type":"string","format":"time"},{"type":"string","format":"date-time","maxLength":20},
  {"type":"string","format":"duration"},{"type":"string","format":"uuid"},{"type":"string",
  "format":"password"}],"items":{"anyOf":[{"type":"string","format":"date","pattern":"-02-29$"},
  {"type":"null"}]},"minItems":2,"maxItems":8})";
const char* const kAddresses = R"({"type":"object","properties":{"mail":{"type":"string",
  "format":"email"},"host":{"type":"string","format":"hostname","maxLength":12},"v4":{
  "format":"ipv4","type":"string"},"v6":{"type":"string","format":"ipv6"},"uri":{"type":"string",
  "format":"uri"},"ref":{"type":"string","format":"uri-reference","minLength":3}},
  "required":["v4","ref"],"additionalProperties":false})";
const char* const kMultiples = R"({"type":"array","items":{"anyOf":[{"type":"number",
  "multipleOf":0.01,"minimum":0,"maximum":10},{"type":"number","multipleOf":5,"minimum":-20,
  "exclusiveMaximum":40},{"type":"integer","multipleOf":3,"minimum":0,"maximum":30},
  {"allOf":[{"type":"number","multipleOf":0.1},{"exclusiveMinimum":7,"multipleOf":0.001}]}]},
  "minItems":1,"maxItems":4})";

void mutate_schema(std::string& text, PhiloxStream& random) {
  if (draw_below(random, 2) == 0) return hone::test::mutate_json(text, random);
  hone::test::mutate_json_tree(text, random);
}

// What is wrong with a schema is no failure of the library.
template <class Compile>
std::shared_ptr<const JsonSchema> compile_or_refuse(const Compile& compile) {
  try {
    return compile();
  } catch (const Error& error) {
    const ErrorCategory category = error.category();
    EXPECT_TRUE(category == ErrorCategory::InvalidArgument ||
                category == ErrorCategory::CorruptFile || category == ErrorCategory::Unsupported)
        << error.what();
    throw;
  }
}

// A text by random tokens that masks allow. Expects that masks equal a trial of tokens.
class MaskWalk {
 public:
  MaskWalk(const std::shared_ptr<const JsonSchema>& compiled,
           const std::shared_ptr<const TokenVocabulary>& vocabulary, PhiloxStream& random)
      : constraint_(compiled, vocabulary),
        matcher_(compiled),
        state_(matcher_.start()),
        vocabulary_(*vocabulary),
        random_(random) {
    for (text::TokenId id = 0; id < vocabulary_.size(); ++id) {
      if (vocabulary_.is_stop(id) || vocabulary_.bytes(id).empty()) special_.push_back(id);
    }
  }

  // So many more tokens at most. The later half closes what it can.
  void take(int most) {
    for (int i = 0; i < most && !has_ended_ && !constraint_.is_complete(); ++i) {
      step(i > most / 2);
      if (testing::Test::HasFailure()) return;
    }
  }
  // The same where every byte and every token of the format is in the vocabulary.
  void take_without_errors(int most) {
    try {
      take(most);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << " after " << text_;
    }
  }
  const std::string& written() const { return text_; }
  // Whether the text is complete and few enough readings of it are possible for one matcher.
  bool is_complete() const { return constraint_.is_complete() && !state_.is_dead(); }

 private:
  // Whether the format names the token by its id.
  bool is_named(text::TokenId id) const {
    return !matcher_.advance_token(state_, id, /*has_text=*/true).is_dead();
  }
  bool can_follow(text::TokenId id) {
    if (is_named(id)) return true;
    if (vocabulary_.is_stop(id)) return matcher_.is_accepting(state_);
    if (vocabulary_.bytes(id).empty()) {
      return !matcher_.advance_token(state_, id, /*has_text=*/false).is_dead();
    }
    const Matcher::Mark mark = matcher_.mark();
    const bool follows = !matcher_.advance(state_, vocabulary_.bytes(id)).is_dead();
    matcher_.cut(mark);
    return follows;
  }
  void check(const TokenMask& mask, text::TokenId id) {
    if (!mask.allows(id)) {
      EXPECT_FALSE(can_follow(id)) << text_ << ": " << id;
      return;
    }
    const Matcher::State here = constraint_.state();
    EXPECT_NO_THROW(constraint_.accept(id)) << text_ << ": " << id;
    constraint_.restore(here);
  }
  void step(bool closes) {
    const TokenMask mask = constraint_.allowed();
    for (const text::TokenId id : special_) check(mask, id);
    for (int i = 0; i < 4; ++i) check(mask, draw(vocabulary_.size()));
    std::vector<text::TokenId> allowed, closing;
    for (text::TokenId id = 0; id < vocabulary_.size(); ++id) {
      if (!mask.allows(id) || (vocabulary_.is_stop(id) && !is_named(id))) continue;
      allowed.push_back(id);
      const std::string& bytes = vocabulary_.bytes(id);
      if (bytes == "\"" || bytes == "}" || bytes == "]") closing.push_back(id);
    }
    has_ended_ = allowed.empty();
    if (has_ended_) {
      EXPECT_TRUE(constraint_.is_accepting()) << text_;
      return;
    }
    const auto& choices = closes && !closing.empty() ? closing : allowed;
    append(choices[static_cast<std::size_t>(draw(std::ssize(choices)))]);
  }
  void append(text::TokenId id) {
    const std::string& bytes = vocabulary_.bytes(id);
    const bool is_stop = vocabulary_.is_stop(id), has_text = !is_stop && !bytes.empty();
    constraint_.accept(id);
    Matcher::State next = matcher_.advance_token(state_, id, has_text || is_stop);
    if (next.is_dead() && has_text) next = matcher_.advance(state_, bytes);
    state_ = std::move(next);
    text_ += has_text ? bytes : concat("[", id, "]");
    if (state_.is_dead()) return;
    EXPECT_EQ(constraint_.is_accepting(), matcher_.is_accepting(state_)) << text_;
    EXPECT_EQ(constraint_.is_complete(), matcher_.is_complete(state_)) << text_;
  }
  text::TokenId draw(Index below) {
    return static_cast<text::TokenId>(draw_below(random_, static_cast<std::size_t>(below)));
  }

  TokenConstraint constraint_;
  Matcher matcher_;  // on its own
  Matcher::State state_;
  const TokenVocabulary& vocabulary_;
  PhiloxStream& random_;
  std::vector<text::TokenId> special_;
  std::string text_;
  bool has_ended_ = false;
};

struct SchemaSeed {
  const char* name;
  const char* schema;
  int runs = 10'000;  // fewer where a schema has large tables
  std::int64_t bytes = std::int64_t{16} << 20;
};
class SchemaMutation : public testing::TestWithParam<SchemaSeed> {};

TEST_P(SchemaMutation, masks_allow_what_the_schema_allows) {
  const auto vocabulary = test::make_small_vocabulary();
  const SchemaSeed& seed = GetParam();
  PhiloxStream random(5);
  const auto outcome = hone::test::run_mutations(
      seed.schema, mutate_schema,
      [&](const std::string& schema) {
        const auto compiled = compile_or_refuse([&] { return JsonSchema::compile(schema); });
        MaskWalk walk(compiled, vocabulary, random);
        walk.take_without_errors(24);
        if (!walk.is_complete()) return;
        EXPECT_NO_THROW(parse_json(walk.written(), "text", {.depth = 300})) << walk.written();
        EXPECT_TRUE(test::accepts(compiled, walk.written())) << walk.written();
      },
      {.runs = seed.runs, .is_text = true, .processor_s = kMutationSeconds, .bytes = seed.bytes});
  EXPECT_GT(outcome.opened, seed.runs / 100);
  EXPECT_GT(outcome.refused, seed.runs / 10);
}

INSTANTIATE_TEST_SUITE_P(
    , SchemaMutation,
    testing::Values(SchemaSeed{"of_all_keywords", kAllKeywords},
                    SchemaSeed{"of_free_form_objects", kFreeForm},
                    SchemaSeed{"of_alternatives_that_go_on_alike", kAlternatives},
                    SchemaSeed{"of_all_of", kAllOf, 5'000, kPatternBytes},
                    SchemaSeed{"of_one_of", kOneOf, 5'000},
                    SchemaSeed{"of_patterns", kPatterns, 3'000, kPatternBytes},
                    SchemaSeed{"of_formats_of_times", kTimes, 1'500, kPatternBytes},
                    SchemaSeed{"of_formats_of_addresses", kAddresses, 500, kPatternBytes},
                    SchemaSeed{"of_multiples", kMultiples, 5'000}),
    [](const auto& seed) { return std::string(seed.param.name); });

// The small vocabulary, pieces of formats, and then tokens without text.
struct FormatTokens {
  std::shared_ptr<const TokenVocabulary> vocabulary;
  text::TokenId stop = 0, first_control = 0;
};
constexpr int kControlTokens = 4;

FormatTokens make_format_tokens() {
  std::vector<std::string> tokens = test::small_vocabulary();
  FormatTokens out;
  out.stop = static_cast<text::TokenId>(tokens.size() - 1);
  for (const char* piece :
       {"</", "think>", "</think>", "</think>\n\n", "<tool_call>", "\n<tool_", "call>\n{\"",
        "{\"name\": ", "\"get\"", "\"get_", "all\"", ", \"arguments\": ", "}\n</tool_call>", "\n\n",
        "  ", "]  ", ", 1", "\"cat\"", "\"kind\":"}) {
    tokens.emplace_back(piece);
  }
  out.first_control = static_cast<text::TokenId>(tokens.size());
  tokens.resize(tokens.size() + kControlTokens);
  out.vocabulary =
      std::make_shared<const TokenVocabulary>(std::move(tokens), std::span(&out.stop, 1));
  return out;
}

// A description of a format is JSON: {"before": [part…], "choices": [[part…]…], "between", "after",
// "repeats"}. A part is ["text", text], ["token", id], ["space"], ["value", schema, is strict,
// label] or ["free", text, id, may end, only at start]. Ids 0 to 3 are tokens without text, 4 is
// the stop token, others are those of the vocabulary, or of none. Wrong types are left to the
// library where they mean something there.
class FormatReader {
 public:
  explicit FormatReader(const FormatTokens& tokens) : tokens_(tokens) {}

  OutputFormat read(const std::string& description) const {
    const Json json = parse_json(description, "a format");
    OutputFormat format;
    if (!json.is_object()) return format;
    const auto parts = [&](const char* name) { return parts_of(json.value(name, Json())); };
    format.before = parts("before");
    format.between = parts("between");
    format.after = parts("after");
    const Json choices = json.value("choices", Json());
    if (choices.is_array()) {
      for (const Json& choice : choices) format.choices.push_back(parts_of(choice));
    }
    format.repeats = json.value("repeats", Json()) == true;
    return format;
  }

  // Whether a part names a token that the vocabulary lacks.
  bool has_foreign_token(const OutputFormat& format) const {
    const auto is_foreign = [&](const OutputPart& part) {
      return part.token >= tokens_.vocabulary->size();
    };
    const auto has_one = [&](const std::vector<OutputPart>& parts) {
      return std::ranges::any_of(parts, is_foreign);
    };
    return has_one(format.before) || has_one(format.between) || has_one(format.after) ||
           std::ranges::any_of(format.choices, has_one);
  }

 private:
  // Code points below 256 are bytes, so that a description can have any of them.
  static std::string bytes_of_points(const std::string& points) {
    std::string out;
    for (std::string_view rest = points; !rest.empty();) {
      const text::CodePoint point = text::decode_utf8(rest);
      const auto size = static_cast<std::size_t>(std::max(1, point.bytes));
      if (point.bytes > 0 && point.value < 256) {
        out += static_cast<char>(point.value);
      } else {
        out += rest.substr(0, size);
      }
      rest.remove_prefix(size);
    }
    return out;
  }
  text::TokenId token_of(const Json& json) const {
    if (!json.is_number()) return -1;
    const auto number = json.get<double>();
    if (number < 0) return -1;
    if (number == kControlTokens) return tokens_.stop;
    constexpr double kMost = 2'147'483'647;
    const auto id = static_cast<text::TokenId>(std::min(number, kMost));
    return id < kControlTokens ? tokens_.first_control + id : id;
  }
  OutputPart part_of(const Json& json) const {
    static const std::vector<std::pair<std::string, OutputPart::Kind>> kinds = {
        {"text", OutputPart::Kind::Text},
        {"token", OutputPart::Kind::Token},
        {"space", OutputPart::Kind::Space},
        {"value", OutputPart::Kind::Value},
        {"free", OutputPart::Kind::Free}};
    const auto item = [&](std::size_t at) {
      return json.is_array() && at < json.size() ? json[at] : Json();
    };
    OutputPart part;
    for (const auto& [name, kind] : kinds) {
      if (item(0) == name) part.kind = kind;
    }
    const Json content = item(1);
    if (part.kind == OutputPart::Kind::Token) {
      part.token = token_of(content);
    } else if (part.kind == OutputPart::Kind::Value) {
      part.text = content.is_string() ? content.get<std::string>() : content.dump();
      part.is_strict = item(2) != false;
      if (item(3).is_string()) part.label = item(3).get<std::string>();
    } else if (content.is_string()) {
      part.text = bytes_of_points(content.get<std::string>());
    }
    if (part.kind != OutputPart::Kind::Free) return part;
    part.token = token_of(item(2));
    part.may_end = item(3) == true;
    part.only_at_start = item(4) == true;
    return part;
  }
  std::vector<OutputPart> parts_of(const Json& json) const {
    std::vector<OutputPart> parts;
    if (!json.is_array()) return parts;
    for (const Json& part : json) parts.push_back(part_of(part));
    return parts;
  }

  const FormatTokens& tokens_;
};

const char* const kHermesFormat = R"({"before":[["free","<tool_call>",-1,true]],"choices":[[
  ["text","\n{\"name\": \"get\", \"arguments\": "],["value",{"type":"object","properties":{"a":
  {"type":"integer"},"x":{"enum":["ab",12,null]}}}],["text","}\n</tool_call>"]],[["text",
  "\n{\"name\": \"get_all\", \"arguments\": "],["value",{"type":"object","properties":{"q":{"allOf":
  [{"type":"object","properties":{"u":{"type":"null"}}},{"required":["u"]}]}}},false,"tools[1]"],
  ["text","}\n</tool_call>"]]],"between":[["text","\n<tool_call>"]],"repeats":true})";
const char* const kTokenFormat = R"({"before":[["free","</think>",1],["space"],["token",0]],
  "choices":[[["text","f"],["token",2],["value",{"type":"integer","minimum":0,"maximum":120}]],
  [["text","get"],["token",2],["value",{"type":"string","pattern":"^[a-c]{1,3}$"},false]]],
  "between":[["token",0]],"after":[["space"],["token",3]],"repeats":true})";
const char* const kStartFormat = R"({"before":[["free","{\"name\": ",-1,true,true]],"choices":[[
  ["text","\"f\", \"parameters\": "],["value",{"oneOf":[{"type":"object","properties":{"kind":
  {"const":"cat"},"n":{"type":"number","multipleOf":0.5,"minimum":0,"maximum":9}},"required":
  ["kind"]},{"type":"object","properties":{"kind":{"const":"dog"}},"required":["kind"],
  "additionalProperties":{"type":"boolean"}}]}],["text","}"]],[["text","\"get\"}"]]]})";
const char* const kMixedFormat = R"({"before":[["text","["]],"choices":[[["value",{"anyOf":[
  {"type":"array","items":{"properties":{"a":true}},"maxItems":2},{"type":"string","format":"date"}
  ]}],["space"],["token",1]],[["token",0],["value",true,false,"x"],["free","\u00c3\u00a9!",2]],
  [["text","\u00ff\u0000"],["value",{"enum":[1,12]}],["value",{"enum":[3,"a"]}]],[["value",
  {"type":"null"}],["free","",-1,true]]],"between":[["text",", "],["free","aab",65]],"after":[
  ["space"],["space"],["text","]"],["token",4]],"repeats":true})";

struct FormatSeed {
  const char* name;
  const char* description;
};
class FormatMutation : public testing::TestWithParam<FormatSeed> {};

TEST_P(FormatMutation, masks_allow_what_the_format_allows) {
  constexpr int kRuns = 5'000;
  const FormatTokens tokens = make_format_tokens();
  const FormatReader reader(tokens);
  PhiloxStream random(6);
  const auto outcome = hone::test::run_mutations(
      GetParam().description, mutate_schema,
      [&](const std::string& description) {
        const OutputFormat format = reader.read(description);
        std::vector<std::string> ignored;
        const auto compiled = compile_or_refuse([&] { return compile_output(format, &ignored); });
        MaskWalk walk(compiled, tokens.vocabulary, random);
        if (reader.has_foreign_token(format)) {
          walk.take(32);  // may end in an error: no token can follow
        } else {
          walk.take_without_errors(32);
        }
      },
      {.runs = kRuns, .is_text = true, .processor_s = kMutationSeconds, .bytes = kPatternBytes});
  EXPECT_GT(outcome.opened, kRuns / 50);
}

INSTANTIATE_TEST_SUITE_P(, FormatMutation,
                         testing::Values(FormatSeed{"of_calls_in_text", kHermesFormat},
                                         FormatSeed{"of_calls_in_control_tokens", kTokenFormat},
                                         FormatSeed{"of_calls_as_the_whole_answer", kStartFormat},
                                         FormatSeed{"of_all_kinds_of_parts", kMixedFormat}),
                         [](const auto& seed) { return std::string(seed.param.name); });

constexpr std::array<std::string_view, 14> kPatternSeeds = {
    "^[A-Z]{2}-\\d{3,5}$",
    "(a|b)*a(a|b){3}",
    "^(?:[^\\s\"\\\\]|\\n)+?$",
    "\\u0041|\\u{1F600}|\\ud83d\\ude00",
    "^([01]\\d|2[0-3]):[0-5]\\d$",
    "(?<year>\\d{4})-(?<month>0[1-9]|1[0-2])",
    "^.{2,7}$|^$",
    "[\\b\\t\\x00-\\x1f\\cJ]",
    "^(\\w+\\s?)*$",
    "[^]é[a-zß-ÿ]+",
    "((a*)*b?)*",
    "^\\p{L}",
    "(?=x)x",
    ""};

// Puts in, takes out, repeats and wraps parts of patterns.
void mutate_pattern(std::string& pattern, PhiloxStream& random) {
  static constexpr std::array<std::string_view, 58> kParts = {
      "(",       ")",          "[",
      "]",       "{",          "}",
      "|",       "^",          "$",
      ".",       "*",          "+",
      "?",       "\\",         "-",
      ",",       "(?:",        "(?<n>",
      "(?=",     "(?<!",       "{2}",
      "{0,3}",   "{2,}",       "{,}",
      "{40}",    "{0,200}",    "{3,2}",
      "\\d",     "\\w",        "\\s",
      "\\D",     "\\W",        "\\S",
      "\\u0041", "\\u{1F600}", "\\ud83d\\ude00",
      "\\ud83d", "\\x41",      "\\cJ",
      "\\0",     "\\b",        "\\B",
      "\\p{L}",  "\\1",        "[^",
      "[]",      "[^]",        "a-z",
      "\\u{0}",  "\\uffff-é",  "\xf0\x9f\x98\x80",
      "é",       "\"",         "\n",
      "a",       "b",          "0",
      "{1000}"};
  pattern = kPatternSeeds[draw_below(random, kPatternSeeds.size())];
  for (std::size_t n = 1 + draw_below(random, 4); n > 0; --n) {
    const std::size_t at = draw_below(random, pattern.size() + 1);
    const std::size_t length = draw_below(random, 12);
    const std::string part = pattern.substr(at, length);
    switch (draw_below(random, 6)) {
      case 0:
        pattern.erase(at, length);
        break;
      case 1:
        pattern.insert(draw_below(random, pattern.size() + 1), part);
        break;
      case 2:
        pattern.replace(at, length, "(" + part + ")*");
        break;
      case 3:
        pattern.insert(at, 1, static_cast<char>(draw_below(random, 256)));
        break;
      default:
        pattern.insert(at, kParts[draw_below(random, kParts.size())]);
    }
  }
}

TEST(PatternMutation, texts_match_or_the_pattern_is_refused) {
  const auto vocabulary = test::make_small_vocabulary();
  PhiloxStream random(7);
  constexpr int kRuns = 6'000;
  const auto outcome = hone::test::run_mutations(
      std::string(kPatternSeeds[0]), mutate_pattern,
      [&](const std::string& pattern) {
        Json schema = {{"type", "string"}, {"pattern", pattern}};
        if (draw_below(random, 3) == 0) {
          schema["minLength"] = draw_below(random, 6);
          schema["maxLength"] = draw_below(random, 40);
        }
        // Bytes that are no UTF-8 become U+FFFD.
        const std::string written = schema.dump(-1, ' ', false, Json::error_handler_t::replace);
        std::vector<std::string> ignored;
        std::vector<std::string>* const may_ignore =
            draw_below(random, 4) == 0 ? &ignored : nullptr;
        const auto compiled =
            compile_or_refuse([&] { return JsonSchema::compile(written, may_ignore); });
        MaskWalk walk(compiled, vocabulary, random);
        walk.take_without_errors(32);
        if (!walk.is_complete()) return;
        EXPECT_TRUE(Json::parse(walk.written(), nullptr, false).is_string()) << walk.written();
        EXPECT_TRUE(test::accepts(compiled, walk.written())) << walk.written();
      },
      {.runs = kRuns, .is_text = true, .processor_s = kMutationSeconds, .bytes = kPatternBytes});
  EXPECT_GT(outcome.opened, kRuns / 20);
}

}  // namespace
}  // namespace hone::infer::grammar
