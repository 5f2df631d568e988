// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hone/text/bpe/merge.h"
#include "hone/text/vocabulary.h"

namespace hone::text {

// Maps (left id, right id) to Merge. Open addressing, at most half full, filled once.
class PairTable {
 public:
  PairTable() : PairTable(0) {}
  explicit PairTable(std::size_t pairs)
      : slots_(std::bit_ceil(2 * pairs + 2)), mask_(slots_.size() - 1) {}

  // Returns false if the pair exists already; the first one stays.
  bool insert(TokenId left, TokenId right, const Merge& merge) {
    Slot& slot = slots_[find_slot(key_of(left, right))];
    if (slot.key != kEmpty) return false;
    slot = {key_of(left, right), merge};
    return true;
  }
  const Merge* find(TokenId left, TokenId right) const {
    const Slot& slot = slots_[find_slot(key_of(left, right))];
    return slot.key == kEmpty ? nullptr : &slot.merge;
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // ids are never both -1
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static std::uint64_t key_of(TokenId left, TokenId right) {
    return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
           static_cast<std::uint32_t>(right);
  }
  // The seed differs from table to table, so that no file can choose ids that all share a slot.
  std::size_t find_slot(std::uint64_t key) const {
    std::uint64_t mixed = (key ^ seed_) * 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ (mixed >> 32)) * (2 * seed_ + 1);
    std::size_t slot = (mixed >> 29) & mask_;
    while (slots_[slot].key != key && slots_[slot].key != kEmpty) slot = (slot + 1) & mask_;
    return slot;
  }

  std::vector<Slot> slots_;
  std::size_t mask_;
  std::uint64_t seed_ = std::random_device()();
};

// The table of a vocabulary's merges, in their order. `ids` has the id of each piece. Throws
// Error{CorruptFile} that names `where` if a merge has a piece that is not in it.
PairTable index_merges(const Vocabulary& vocabulary,
                       const std::unordered_map<std::string_view, TokenId>& ids,
                       std::string_view where);

}  // namespace hone::text
