// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hone/core/index.h"
#include "hone/text/tokenizer.h"

namespace hone::infer::grammar {

// A set of token ids.
class TokenMask {
 public:
  explicit TokenMask(Index tokens) : words_(static_cast<std::size_t>((tokens + 63) / 64)) {}
  void allow(text::TokenId id) { word(id) |= std::uint64_t{1} << (id % 64); }
  void allow_all(const TokenMask& other);
  bool allows(text::TokenId id) const {
    return (words_[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
  }
  Index count() const;
  bool empty() const;
  // Sets the logits of all other tokens to -infinity.
  void apply(std::span<float> logits) const;

 private:
  std::uint64_t& word(text::TokenId id) { return words_[static_cast<std::size_t>(id) / 64]; }
  std::vector<std::uint64_t> words_;
};

}  // namespace hone::infer::grammar
