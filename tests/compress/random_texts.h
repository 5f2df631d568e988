// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/philox.h"
#include "hone/text/tokenizer.h"

namespace hone::compress {

// Texts of random tokens of the tiny models of the tests.
inline std::vector<std::vector<text::TokenId>> random_texts(std::size_t count, int tokens = 40) {
  constexpr std::uint32_t kVocab = 48;
  PhiloxStream random(5);
  std::vector<std::vector<text::TokenId>> texts(count);
  for (auto& text : texts) {
    for (int i = 0; i < tokens; ++i)
      text.push_back(static_cast<text::TokenId>(random.below(kVocab)));
  }
  return texts;
}

}  // namespace hone::compress
