// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/token_mask.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace hone::infer::grammar {

void TokenMask::allow_all(const TokenMask& other) {
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
}

Index TokenMask::count() const {
  Index count = 0;
  for (const std::uint64_t word : words_) count += std::popcount(word);
  return count;
}

bool TokenMask::empty() const {
  return std::ranges::all_of(words_, [](std::uint64_t word) { return word == 0; });
}

void TokenMask::apply(std::span<float> logits) const {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (std::size_t begin = 0; begin < logits.size(); begin += 64) {
    const std::uint64_t word = words_[begin / 64];
    if (word == ~std::uint64_t{0}) continue;
    const std::size_t count = std::min<std::size_t>(logits.size() - begin, 64);
    float* block = logits.data() + begin;
    if (word == 0) {
      std::fill_n(block, count, kNever);
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) block[i] = (word >> i & 1) != 0 ? block[i] : kNever;
  }
}

}  // namespace hone::infer::grammar
