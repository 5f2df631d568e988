// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/philox.h"
#include "hone/infer/grammar/matcher.h"
#include "hone/infer/grammar/token_constraint.h"
#include "tests/support/error_of.h"

namespace hone::infer::grammar::test {

// Whether the whole text is accepted.
inline bool accepts(const std::shared_ptr<const JsonSchema>& schema, std::string_view text) {
  Matcher matcher(schema);
  return matcher.is_accepting(matcher.advance(matcher.start(), text));
}

inline bool accepts(std::string_view schema, std::string_view text) {
  return accepts(JsonSchema::compile(schema), text);
}

inline std::string refusal_of(std::string_view schema) {
  return hone::test::error_of([&] { JsonSchema::compile(schema); });
}

// Every single byte, then pieces as they are in the vocabularies of models; the last id stops.
inline std::vector<std::string> small_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* piece : {"{\"",      "\":",      "\": ",
                            "\",\"",    "\"}",      "\"}]",
                            "}]}",      "[]",       "{}",
                            "[[",       "], [",     "null",
                            "true",     "fal",      "se",
                            "12",       "345",      "-1",
                            "0.",       ".5",       "00",
                            "9999",     "a",        "name",
                            "the",      " the",     "id",
                            "\\n",      "\\u00",    "\\ud83d",
                            "\\\"",     "\xc3\xa9", "\xf0\x9f\x98\x80",
                            "\xe4\xb8", "é\"",      "a\", \"b",
                            "1,",       "1]",       ", ",
                            ",\n",      "a\":1",    "longer text of several words",
                            "\t",       "b\":"}) {
    tokens.emplace_back(piece);
  }
  tokens.emplace_back("</s>");
  return tokens;
}

inline std::shared_ptr<const TokenVocabulary> make_small_vocabulary() {
  std::vector<std::string> tokens = small_vocabulary();
  const auto stop = static_cast<text::TokenId>(tokens.size() - 1);
  return std::make_shared<const TokenVocabulary>(std::move(tokens), std::span(&stop, 1));
}

// A text by tokens that are drawn from the masks; empty if it does not end within `most` tokens.
// From half of them on, the shortest tokens that close something are preferred.
inline std::string random_text(const std::shared_ptr<const JsonSchema>& schema,
                               const std::shared_ptr<const TokenVocabulary>& vocabulary,
                               PhiloxStream& random, int most) {
  TokenConstraint constraint(schema, vocabulary);
  std::string text;
  for (int i = 0; i < most; ++i) {
    if (constraint.is_complete()) return text;
    const TokenMask& mask = constraint.allowed();
    std::vector<text::TokenId> allowed, closing;
    for (text::TokenId id = 0; id < vocabulary->size(); ++id) {
      if (!mask.allows(id)) continue;
      allowed.push_back(id);
      const std::string& bytes = vocabulary->bytes(id);
      if (bytes == "\"" || bytes == "}" || bytes == "]") closing.push_back(id);
    }
    const bool close = !closing.empty() && (i > most / 2 || random.below(4) == 0);
    const auto& choices = close ? closing : allowed;
    const text::TokenId id = choices[random.below(static_cast<std::uint32_t>(choices.size()))];
    if (vocabulary->is_stop(id)) return text;
    constraint.accept(id);
    text += vocabulary->bytes(id);
  }
  return constraint.is_accepting() ? text : std::string{};
}

}  // namespace hone::infer::grammar::test
