// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/prefix_cache.h"

#include <algorithm>
#include <tuple>

#include "hone/core/check.h"

namespace hone::infer {

PrefixCache::PrefixCache(std::span<const LayerGroup> groups, const PrefixSecret& secret,
                         ExtendKey extend)
    : groups_(groups.begin(), groups.end()),
      has_windows_(std::ranges::any_of(groups, [](const LayerGroup& g) { return g.window > 0; })),
      secret_(secret),
      extend_(extend) {}

PrefixKey PrefixCache::key(std::uint64_t salt, PrefixId id) const {
  return id == kEmptyPrefix ? root_key(secret_, salt) : entries_[at(id)].key;
}

bool PrefixCache::is_equal(const Entry& entry, std::uint64_t salt, PrefixId parent,
                           std::span<const TokenId> ids) const {
  return entry.salt == salt && entry.parent == parent && std::ranges::equal(entry.ids, ids);
}

PrefixId PrefixCache::find(std::uint64_t salt, PrefixId parent,
                           std::span<const TokenId> ids) const {
  const auto found = by_key_.find(key_after(key(salt, parent), ids));
  const bool is_hit =
      found != by_key_.end() && is_equal(entries_[at(found->second)], salt, parent, ids);
  return is_hit ? found->second : kLostPrefix;
}

std::vector<PrefixId> PrefixCache::match(std::uint64_t salt, PrefixId after,
                                         std::span<const TokenId> tokens, Index length,
                                         Index limit) const {
  std::vector<PrefixId> path;
  if (after == kLostPrefix) return path;
  // By group: how many consecutive blocks up to here are at hand.
  std::vector<Index> present(groups_.size(), length / kBlockTokens);
  std::size_t usable = 0;
  for (Index end = length + kBlockTokens; end <= limit; end += kBlockTokens) {
    after = find(salt, after, tokens.subspan(at(end - kBlockTokens), kBlockTokens));
    if (after == kLostPrefix) break;
    path.push_back(after);
    bool is_complete = true;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      present[g] = entries_[at(after)].blocks[g] == kNoBlock ? 0 : present[g] + 1;
      is_complete &= present[g] >= end / kBlockTokens - first_block(groups_[g], end);
    }
    if (is_complete) usable = path.size();
  }
  path.resize(usable);
  return path;
}

PrefixId PrefixCache::insert(BlockPool& pool, std::uint64_t salt, PrefixId parent,
                             std::span<const TokenId> ids, std::span<const BlockId> blocks) {
  if (parent == kLostPrefix) return kLostPrefix;
  const PrefixKey new_key = key_after(key(salt, parent), ids);
  const auto found = by_key_.find(new_key);
  if (found != by_key_.end()) {
    Entry& entry = entries_[at(found->second)];
    if (!is_equal(entry, salt, parent, ids)) return kLostPrefix;
    fill(pool, entry, blocks);
    return found->second;
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].window == 0 && blocks[g] == kNoBlock) return kLostPrefix;
  }
  if (unused_.empty()) {
    unused_.push_back(static_cast<PrefixId>(entries_.size()));
    entries_.emplace_back();
  }
  const PrefixId id = unused_.back();
  unused_.pop_back();
  Entry& entry = entries_[at(id)];
  entry = {.key = new_key, .salt = salt, .parent = parent};
  entry.blocks.assign(groups_.size(), kNoBlock);
  std::ranges::copy(ids, entry.ids.begin());
  fill(pool, entry, blocks);
  by_key_.emplace(new_key, id);
  if (parent != kEmptyPrefix && ++entries_[at(parent)].children == 1) drop_leaf(parent);
  link_newest(id);
  return id;
}

void PrefixCache::fill(BlockPool& pool, Entry& entry, std::span<const BlockId> blocks) const {
  for (std::size_t g = 0; g < blocks.size(); ++g) {
    if (entry.blocks[g] != kNoBlock || blocks[g] == kNoBlock) continue;
    entry.blocks[g] = blocks[g];
    pool.share_with_cache(static_cast<Index>(g), blocks[g]);
  }
}

PrefixId PrefixCache::ancestor(PrefixId id, Index count) const {
  for (; count > 0 && id >= 0; --count) id = entries_[at(id)].parent;
  return id;
}

void PrefixCache::pin(PrefixId id) {
  if (id < 0) return;
  if (++entries_[at(id)].pins == 1) drop_leaf(id);
}

void PrefixCache::unpin(PrefixId id) {
  if (id < 0) return;
  --entries_[at(id)].pins;
  add_leaf(id);
}

void PrefixCache::touch(PrefixId id) {
  for (; id >= 0; id = entries_[at(id)].parent) {
    unlink(id);
    link_newest(id);
  }
}

bool PrefixCache::evict_one(BlockPool& pool) {
  // Tenants with at least an equal share first, then the others, each the longest unused first.
  std::vector<std::tuple<bool, std::uint64_t, const Tenant*>> order;
  for (const auto& [salt, tenant] : tenants_) {
    const bool has_less = tenant.size * std::ssize(tenants_) < size();
    order.emplace_back(has_less, entries_[at(tenant.oldest)].used, &tenant);
  }
  std::ranges::sort(order);
  const bool has_evicted = std::ranges::any_of(
      order, [&](const auto& entry) { return evict_from(pool, *std::get<2>(entry)); });
  evictions_ += has_evicted;
  return has_evicted;
}

bool PrefixCache::evict_from(BlockPool& pool, const Tenant& tenant) {
  if (!has_windows_) {
    if (tenant.leaves.empty()) return false;
    remove(pool, tenant.leaves.begin()->second);
    return true;
  }
  for (PrefixId id = tenant.oldest; id != kEmptyPrefix; id = entries_[at(id)].newer) {
    Entry& entry = entries_[at(id)];
    if (is_leaf(entry)) {
      remove(pool, id);
      return true;
    }
    if (drop_behind_window(pool, entry)) return true;
  }
  return false;
}

void PrefixCache::forget(BlockPool& pool, PrefixId id) {
  while (id >= 0 && is_leaf(entries_[at(id)])) {
    const PrefixId parent = entries_[at(id)].parent;
    remove(pool, id);
    id = parent;
  }
}

void PrefixCache::add_leaf(PrefixId id) {
  const Entry& entry = entries_[at(id)];
  if (is_leaf(entry)) tenants_.at(entry.salt).leaves.emplace(entry.used, id);
}

void PrefixCache::drop_leaf(PrefixId id) {
  const Entry& entry = entries_[at(id)];
  tenants_.at(entry.salt).leaves.erase({entry.used, id});
}

bool PrefixCache::drop_behind_window(BlockPool& pool, Entry& entry) const {
  bool is_any = false;
  for (Index g = 0; g < pool.groups(); ++g) {
    BlockId& block = entry.blocks[at(g)];
    if (groups_[at(g)].window == 0 || pool.references(g, block) != 1) continue;
    pool.release_from_cache(g, block);
    is_any = true;
  }
  return is_any;
}

void PrefixCache::remove(BlockPool& pool, PrefixId id) {
  Entry& entry = entries_[at(id)];
  for (Index g = 0; g < pool.groups(); ++g) {
    if (entry.blocks[at(g)] != kNoBlock) pool.release_from_cache(g, entry.blocks[at(g)]);
  }
  by_key_.erase(entry.key);
  unlink(id);
  if (entry.parent != kEmptyPrefix) {
    --entries_[at(entry.parent)].children;
    add_leaf(entry.parent);
  }
  if (tenants_.at(entry.salt).size == 0) tenants_.erase(entry.salt);
  unused_.push_back(id);
}

void PrefixCache::link_newest(PrefixId id) {
  Entry& entry = entries_[at(id)];
  Tenant& tenant = tenants_[entry.salt];
  entry.used = ++uses_;
  entry.older = tenant.newest;
  entry.newer = kEmptyPrefix;
  (entry.older == kEmptyPrefix ? tenant.oldest : entries_[at(entry.older)].newer) = id;
  tenant.newest = id;
  ++tenant.size;
  add_leaf(id);
}

void PrefixCache::unlink(PrefixId id) {
  const Entry& entry = entries_[at(id)];
  Tenant& tenant = tenants_.at(entry.salt);
  drop_leaf(id);
  (entry.older == kEmptyPrefix ? tenant.oldest : entries_[at(entry.older)].newer) = entry.newer;
  (entry.newer == kEmptyPrefix ? tenant.newest : entries_[at(entry.newer)].older) = entry.older;
  --tenant.size;
}

void PrefixCache::count_references(std::span<std::vector<Index>> counts) const {
  for (const auto& [key, id] : by_key_) {
    const std::vector<BlockId>& held = entries_[at(id)].blocks;
    for (std::size_t g = 0; g < held.size(); ++g) {
      if (held[g] == kNoBlock) continue;
      if (counts[g].size() <= at(held[g])) counts[g].resize(at(held[g]) + 1);
      ++counts[g][at(held[g])];
    }
  }
}

}  // namespace hone::infer
