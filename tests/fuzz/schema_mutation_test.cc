// SPDX-License-Identifier: Apache-2.0
// Mutated JSON schemas: each throws one hone::Error, or compiles and always has a byte to go on
// with.
#include <gtest/gtest.h>

#include "hone/infer/grammar/json_schema.h"
#include "hone/infer/grammar/token_constraint.h"
#include "tests/fuzz/mutation_support.h"

namespace hone {
namespace {

using namespace infer::grammar;

const char* const kSeed = R"({"$ref":"#/$defs/a","$defs":{"a":{"type":["object","array","number"],
  "properties":{"n":{"type":"integer","minimum":-5,"maximum":12e1},"s":{"type":"string",
  "minLength":1,"maxLength":3},"b":{"enum":[1,"x",null,{"k":[]}]},"r":{"$ref":"#/$defs/a"}},
  "required":["n"],"additionalProperties":{"const":true},"items":{"$ref":"#/$defs/b"},
  "prefixItems":[true,{"type":"null"}],"minItems":1,"maxItems":4},"b":{"anyOf":[{"type":"string"},
  {"type":"number","exclusiveMinimum":0.25},{"$ref":"#/$defs/a"}],"maxLength":9}}})";

std::shared_ptr<const TokenVocabulary> byte_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 1; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return std::make_shared<const TokenVocabulary>(std::move(tokens),
                                                 std::span<const text::TokenId>());
}

TEST(SchemaMutation, compiles_or_is_refused) {
  const auto vocabulary = byte_vocabulary();
  PhiloxStream random(5);
  const auto outcome = test::run_mutations(kSeed, test::mutate_json, [&](const std::string& text) {
    TokenConstraint constraint(JsonSchema::compile(text), vocabulary);
    for (int i = 0; i < 24 && !constraint.is_complete(); ++i) {
      const TokenMask& mask = constraint.allowed();
      std::vector<text::TokenId> allowed;
      for (text::TokenId id = 0; id < vocabulary->size(); ++id) {
        if (mask.allows(id)) allowed.push_back(id);
      }
      constraint.accept(allowed[random.below(static_cast<std::uint32_t>(allowed.size()))]);
    }
  });
  EXPECT_GT(outcome.opened, 100);
  EXPECT_GT(outcome.refused, 1000);
}

}  // namespace
}  // namespace hone
