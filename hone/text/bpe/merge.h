// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "hone/text/tokenizer.h"

namespace hone::text {

constexpr TokenId kNoToken = -1;

// One symbol of a word: bytes [begin, begin + length) of its text. Symbols form a doubly linked
// list; a symbol that merged into its left neighbor has length 0.
struct Symbol {
  std::int32_t previous = -1, next = -1;
  std::uint32_t begin = 0, length = 0;
  TokenId id = kNoToken;
};

// The result of merging two adjacent symbols. Lower ranks merge first, equal ranks from the left.
struct Merge {
  std::uint32_t rank = 0;
  TokenId id = kNoToken;
};

// Two adjacent symbols that may merge. The key has the rank in its high half and the left symbol's
// number in its low half, so that one comparison orders by rank and then from the left.
struct MergeCandidate {
  std::uint64_t key;
  std::uint32_t length;  // of both
  TokenId id;            // of their union

  std::uint32_t left() const { return static_cast<std::uint32_t>(key); }
  bool operator<(const MergeCandidate& other) const { return key < other.key; }
  bool operator>(const MergeCandidate& other) const { return key > other.key; }
};

// Yields candidates, smallest key first. Most are known before the first merge: they are sorted
// once and read in order, which is faster than a heap of a million entries that exceeds the caches.
// Candidates added by merges go to a heap, which is sorted in turn when the sorted ones run out.
class CandidateQueue {
 public:
  void clear() {
    sorted_.clear();
    added_.clear();
    next_ = 0;
  }
  void push(const MergeCandidate& candidate) {
    added_.push_back(candidate);
    std::push_heap(added_.begin(), added_.end(), std::greater<>());
  }
  // Like push(), but only before the first pop().
  void push_initial(const MergeCandidate& candidate) { added_.push_back(candidate); }
  bool pop(MergeCandidate& out) {
    if (next_ == sorted_.size()) sort_added();
    if (next_ == sorted_.size()) return false;
    if (added_.empty() || sorted_[next_] < added_.front()) {
      out = sorted_[next_++];
      return true;
    }
    out = added_.front();
    std::pop_heap(added_.begin(), added_.end(), std::greater<>());
    added_.pop_back();
    return true;
  }

 private:
  void sort_added() {
    sorted_.swap(added_);
    added_.clear();
    next_ = 0;
    std::sort(sorted_.begin(), sorted_.end());
  }

  std::vector<MergeCandidate> sorted_, added_;
  std::size_t next_ = 0;
};

// Links the symbols in the order of `symbols`.
inline void link_symbols(std::vector<Symbol>& symbols) {
  const auto count = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
}

// Byte-pair encoding of one word in O(n log n), with a queue of candidate pairs over the linked
// list. find(left, right, &merge) says whether two symbols merge; merged(left, right, id) is called
// after each merge. A candidate is stale if its symbols have changed; as symbols only grow, the sum
// of their lengths shows that. `queue` is scratch that the caller keeps to save allocations.
template <class Find, class Merged>
void merge_symbols(std::vector<Symbol>& symbols, CandidateQueue& queue, const Find& find,
                   const Merged& merged) {
  queue.clear();
  const auto candidate_at = [&](std::int32_t left, MergeCandidate& out) {
    const std::int32_t right = left < 0 ? -1 : symbols[left].next;
    Merge merge;
    if (right < 0 || !find(symbols[left], symbols[right], merge)) return false;
    out = {(std::uint64_t{merge.rank} << 32) | static_cast<std::uint32_t>(left),
           symbols[left].length + symbols[right].length, merge.id};
    return true;
  };
  MergeCandidate candidate{};
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
    if (candidate_at(static_cast<std::int32_t>(i), candidate)) queue.push_initial(candidate);
  }
  MergeCandidate best{};
  while (queue.pop(best)) {
    Symbol& left = symbols[best.left()];
    if (left.length == 0 || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (left.length + right.length != best.length) continue;
    merged(left, right, best.id);
    left.length = best.length;
    left.id = best.id;
    right.length = 0;
    left.next = right.next;
    const auto place = static_cast<std::int32_t>(best.left());
    if (left.next >= 0) symbols[left.next].previous = place;
    if (candidate_at(left.previous, candidate)) queue.push(candidate);
    if (candidate_at(place, candidate)) queue.push(candidate);
  }
}

}  // namespace hone::text
