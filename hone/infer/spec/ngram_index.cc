// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/spec/ngram_index.h"

#include <algorithm>

#include "hone/core/check.h"

namespace hone::infer {

// The n-gram of `length` tokens before `end`; the constants are those of SplitMix64.
std::uint64_t NgramIndex::hash_before(Index end, Index length) const {
  auto hash = static_cast<std::uint64_t>(length);
  for (Index i = end - length; i < end; ++i) {
    hash += static_cast<std::uint32_t>(tokens_[static_cast<std::size_t>(i)]) + 0x9e3779b97f4a7c15u;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    hash ^= hash >> 31;
  }
  return hash;
}

void NgramIndex::push(text::TokenId id) {
  Places replaced;
  replaced.fill(kNone);
  for (Index length = kShortest; length <= std::min(kLongest, size()); ++length) {
    const auto [place, is_new] = latest_.try_emplace(hash_before(size(), length), kNone);
    replaced[static_cast<std::size_t>(length - kShortest)] = place->second;
    place->second = size();
  }
  tokens_.push_back(id);
  replaced_.push_back(replaced);
}

void NgramIndex::append(std::span<const text::TokenId> tokens) {
  for (const text::TokenId id : tokens) push(id);
}

void NgramIndex::truncate(Index size_kept) {
  HONE_CHECK(size_kept >= 0 && size_kept <= size(), "truncate", concat("0 to ", size(), " tokens"),
             size_kept);
  while (size() > size_kept) {
    const Places replaced = replaced_.back();
    tokens_.pop_back();
    replaced_.pop_back();
    for (Index length = kShortest; length <= std::min(kLongest, size()); ++length) {
      const auto place = latest_.find(hash_before(size(), length));
      place->second = replaced[static_cast<std::size_t>(length - kShortest)];
      if (place->second == kNone) latest_.erase(place);
    }
  }
}

// Whether the last `length` tokens are also those before `end`: different n-grams may have one
// hash.
bool NgramIndex::occurs_before(Index end, Index length) const {
  return end >= length &&
         std::equal(tokens_.end() - length, tokens_.end(), tokens_.begin() + (end - length));
}

std::vector<text::TokenId> NgramIndex::propose(Index count) const {
  for (Index length = std::min(kLongest, size()); length >= kShortest; --length) {
    const auto found = latest_.find(hash_before(size(), length));
    if (found == latest_.end() || !occurs_before(found->second, length)) continue;
    const Index place = found->second, period = size() - place;
    std::vector<text::TokenId> drafts;
    for (Index i = 0; i < count; ++i) {
      drafts.push_back(tokens_[static_cast<std::size_t>(place + i % period)]);
    }
    return drafts;
  }
  return {};
}

}  // namespace hone::infer
