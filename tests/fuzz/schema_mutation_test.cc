// SPDX-License-Identifier: Apache-2.0
// Mutated JSON schemas: each throws one hone::Error, or compiles, and then random walks find that
// its masks allow what the automaton can read, and something until the text is complete.
#include <gtest/gtest.h>

#include "hone/core/file/json_io.h"
#include "tests/fuzz/mutation_support.h"
#include "tests/infer/grammar/grammar_support.h"

namespace hone {
namespace {

using namespace infer::grammar;

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

// Appends a random token that the mask allows, after a look at a few others.
void take_step(TokenConstraint& constraint, const TokenVocabulary& vocabulary, Matcher& matcher,
               std::string& text, PhiloxStream& random) {
  const TokenMask mask = constraint.allowed();
  const Matcher::State state = matcher.advance(matcher.start(), text), here = constraint.state();
  std::vector<text::TokenId> allowed;
  for (text::TokenId id = 0; id < vocabulary.size(); ++id) {
    if (mask.allows(id) && !vocabulary.is_stop(id)) allowed.push_back(id);
  }
  for (int i = 0; i < 4; ++i) {
    const auto id =
        static_cast<text::TokenId>(random.below(static_cast<std::uint32_t>(vocabulary.size())));
    if (mask.allows(id)) {
      constraint.accept(id);  // throws if the mask was wrong
      constraint.restore(here);
    } else if (!vocabulary.is_stop(id)) {
      EXPECT_TRUE(matcher.advance(state, vocabulary.bytes(id)).is_dead()) << text << ": " << id;
    }
  }
  ASSERT_FALSE(allowed.empty() && !constraint.is_accepting());
  if (allowed.empty()) return;
  const text::TokenId id = allowed[random.below(static_cast<std::uint32_t>(allowed.size()))];
  constraint.accept(id);
  text += vocabulary.bytes(id);
}

struct Seed {
  const char* name;
  const char* schema;
};
class SchemaMutation : public testing::TestWithParam<Seed> {};

TEST_P(SchemaMutation, masks_allow_what_the_schema_allows) {
  const auto vocabulary = infer::grammar::test::make_small_vocabulary();
  PhiloxStream random(5);
  const auto outcome = hone::test::run_mutations(
      GetParam().schema, hone::test::mutate_json, [&](const std::string& schema) {
        const auto compiled = JsonSchema::compile(schema);
        TokenConstraint constraint(compiled, vocabulary);
        Matcher matcher(compiled);
        std::string text;
        for (int i = 0; i < 24 && !constraint.is_complete(); ++i) {
          take_step(constraint, *vocabulary, matcher, text, random);
          if (testing::Test::HasFailure()) FAIL() << schema;
        }
        if (constraint.is_complete()) {
          EXPECT_NO_THROW(parse_json(text, "text", {.depth = 300}));
        }
      });
  EXPECT_GT(outcome.opened, 100);
  EXPECT_GT(outcome.refused, 1000);
}

INSTANTIATE_TEST_SUITE_P(, SchemaMutation,
                         testing::Values(Seed{"of_all_keywords", kAllKeywords},
                                         Seed{"of_free_form_objects", kFreeForm},
                                         Seed{"of_alternatives_that_go_on_alike", kAlternatives}),
                         [](const auto& seed) { return std::string(seed.param.name); });

}  // namespace
}  // namespace hone
