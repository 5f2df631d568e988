// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hone/infer/kv/block_pool.h"
#include "hone/infer/kv/layer_group.h"
#include "hone/infer/kv/prefix_key.h"

namespace hone::infer {

using PrefixId = std::int32_t;                // an entry of the cache
inline constexpr PrefixId kEmptyPrefix = -1;  // the prefix of no tokens
inline constexpr PrefixId kLostPrefix = -2;   // a prefix without an entry; it cannot be extended

// Maps texts to the sealed blocks at their end. An entry represents a prefix of 32 n tokens of one
// tenant (salt) and refers to the blocks of its last 32 tokens. Its parent is the prefix without
// them. Tenants with different salts share nothing.
//
// A key is a 128-bit keyed hash of the whole prefix. An entry also stores salt, parent and tokens,
// and all of them are compared. Two texts with the same key thus cannot be mixed up: the second one
// is not cached.
//
// Entries may be found while the requests that computed them still run. Eviction takes the least
// recently used entry that has no children and no pins, of the tenants that have at least an equal
// share of the entries. In groups with a window, blocks of other
// entries that no sequence uses may be evicted before their entry. A prefix that is followed by a
// whole window of cached tokens does not need them.
class PrefixCache {
 public:
  using ExtendKey = PrefixKey (*)(const PrefixSecret&, const PrefixKey&, std::span<const TokenId>);

  // `secret` should be random, so that clients cannot construct collisions. Tests replace `extend`
  // to force them.
  PrefixCache(std::span<const LayerGroup> groups, const PrefixSecret& secret,
              ExtendKey extend = extend_key);

  Index size() const { return static_cast<Index>(by_key_.size()); }
  Index evictions() const { return evictions_; }  // calls of evict_one() that found something
  // The key of the prefix, or of the prefix followed by 32 tokens. `id` must not be kLostPrefix.
  PrefixKey key(std::uint64_t salt, PrefixId id) const;
  PrefixKey key_after(const PrefixKey& parent, std::span<const TokenId> ids) const {
    return extend_(secret_, parent, ids);
  }

  // Returns the entries of successive blocks with which a sequence that has `length` tokens (whole
  // blocks, up to prefix `after`) may continue. These are as many as are cached, have the blocks
  // that the next token reads, and end within the first `limit` tokens of `tokens`. `tokens` starts
  // at position 0.
  std::vector<PrefixId> match(std::uint64_t salt, PrefixId after, std::span<const TokenId> tokens,
                              Index length, Index limit) const;
  // Adds the prefix `parent` followed by `ids`, with the sealed blocks of these tokens (kNoBlock:
  // outside the window). If the entry exists, adds only what it lacks. Returns the entry. Adds
  // nothing and returns kLostPrefix if `parent` is kLostPrefix, after a collision, or if a new
  // entry would lack the block of a group without a window.
  PrefixId insert(BlockPool& pool, std::uint64_t salt, PrefixId parent,
                  std::span<const TokenId> ids, std::span<const BlockId> blocks);
  std::span<const BlockId> blocks(PrefixId id) const { return entries_[at(id)].blocks; }
  // The prefix that is shorter by `count` blocks.
  PrefixId ancestor(PrefixId id, Index count) const;

  // A pinned entry is not evicted. A running sequence pins the last entry of its text. Both accept
  // kEmptyPrefix and kLostPrefix.
  void pin(PrefixId id);
  void unpin(PrefixId id);
  // Marks the prefix as used now, and shorter prefixes as used after it, so that leaf entries are
  // evicted first.
  void touch(PrefixId id);
  // Evicts the least recently used blocks. Returns false if there are none.
  bool evict_one(BlockPool& pool);
  // Drops the prefix, and shorter ones, up to one that another text uses or continues: after a
  // failure, which they may have caused.
  void forget(BlockPool& pool, PrefixId id);

  // Adds the references of all entries to counts[group][block], for BlockPool::audit().
  void count_references(std::span<std::vector<Index>> counts) const;

 private:
  struct Entry {
    PrefixKey key{};
    std::uint64_t salt = 0;
    PrefixId parent = kEmptyPrefix;
    std::array<TokenId, kBlockTokens> ids{};
    std::vector<BlockId> blocks{};  // by group
    Index children = 0, pins = 0;
    std::uint64_t used = 0;                               // a later use has a larger number
    PrefixId older = kEmptyPrefix, newer = kEmptyPrefix;  // of the tenant, in order of use
  };
  // The entries of a tenant, in order of use, and those of them without children and pins.
  struct Tenant {
    PrefixId oldest = kEmptyPrefix, newest = kEmptyPrefix;
    Index size = 0;
    std::set<std::pair<std::uint64_t, PrefixId>> leaves{};  // by Entry::used
  };
  struct KeyHash {
    std::size_t operator()(const PrefixKey& key) const { return key[0]; }
  };

  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
  PrefixId find(std::uint64_t salt, PrefixId parent, std::span<const TokenId> ids) const;
  bool is_equal(const Entry& entry, std::uint64_t salt, PrefixId parent,
                std::span<const TokenId> ids) const;
  void fill(BlockPool& pool, Entry& entry, std::span<const BlockId> blocks) const;
  bool drop_behind_window(BlockPool& pool, Entry& entry) const;
  bool evict_from(BlockPool& pool, const Tenant& tenant);
  bool is_leaf(const Entry& entry) const { return entry.children == 0 && entry.pins == 0; }
  void add_leaf(PrefixId id);   // if it is one
  void drop_leaf(PrefixId id);  // if it was one
  void remove(BlockPool& pool, PrefixId id);
  void link_newest(PrefixId id);
  void unlink(PrefixId id);

  std::vector<LayerGroup> groups_;
  bool has_windows_ = false;
  PrefixSecret secret_;
  ExtendKey extend_;
  std::vector<Entry> entries_;
  std::vector<PrefixId> unused_;
  std::unordered_map<PrefixKey, PrefixId, KeyHash> by_key_;
  std::map<std::uint64_t, Tenant> tenants_;  // by salt
  std::uint64_t uses_ = 0;
  Index evictions_ = 0;
};

}  // namespace hone::infer
