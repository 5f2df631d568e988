// SPDX-License-Identifier: Apache-2.0
// Who gets the blocks of the KV cache, and who loses them.
#include <algorithm>
#include <utility>

#include "hone/infer/sched/scheduler.h"

namespace hone::infer {

// The number of tokens that the sequence can take from the request it forks.
Index Scheduler::shared_with(const Active& active, const Active& parent) {
  const auto end = active.tokens.begin() + active.next_output;
  const auto same =
      std::mismatch(active.tokens.begin(), end, parent.tokens.begin(), parent.tokens.end()).first;
  return same - active.tokens.begin();
}

// The request that it forks, if that is still there.
Scheduler::Active* Scheduler::parent_of(const Active& active) {
  if (!active.request.fork_of) return nullptr;
  const auto found = active_.find(*active.request.fork_of);
  if (found == active_.end()) return nullptr;
  Active& parent = found->second;
  const bool is_older = parent.arrival < active.arrival;  // so that no two wait for each other
  return is_older && parent.request.salt == active.request.salt ? &parent : nullptr;
}

bool Scheduler::waits_for_parent(const Active& active) {
  const Active* parent = parent_of(active);
  return parent != nullptr && parent->state != State::Parked && active.table.length() == 0 &&
         parent->table.length() < shared_with(active, *parent);
}

// Makes a waiting sequence run if all of its text fits. Returns false, and leaves it without
// blocks, if not.
bool Scheduler::start(Active& active, TimeNs now) {
  const Index taken_before = totals_.cached_tokens;
  take_shared_blocks(active);
  take_cached_blocks(active);
  const State state_before = std::exchange(active.state, State::Running);
  Index spare = 0;
  for (Index g = 0; g < pool_.groups(); ++g) spare += (running() - 1) * pool_.block_bytes(g);
  const Index text =
      kv_peak_bytes(options_.groups, static_cast<Index>(active.tokens.size()), options_.max_rows);
  while (text + spare > pool_.free_bytes() + pool_.cached_bytes() + active.table.bytes(pool_)) {
    Active* victim = find_victim(nullptr, now);
    if (victim == nullptr) {
      active.state = state_before;
      totals_.cached_tokens = taken_before;
      release(active);
      return false;
    }
    preempt(*victim);
  }
  totals_.started_tokens += static_cast<Index>(active.tokens.size());
  return true;
}

void Scheduler::take_shared_blocks(Active& active) {
  const Active* parent = parent_of(active);
  if (parent == nullptr || active.table.length() > 0) return;
  const Index length = std::min(shared_with(active, *parent), parent->table.length());
  if (!parent->table.can_fork(length)) return;
  active.table.fork(pool_, parent->table, length);
  totals_.cached_tokens += length;
  const Index beyond = parent->table.length() / kBlockTokens - length / kBlockTokens;
  set_prefix(active, cache_.ancestor(parent->prefix, beyond));
}

// Continues with blocks that other sequences have computed.
void Scheduler::take_cached_blocks(Active& active) {
  const Index length = active.table.length();
  if (length % kBlockTokens != 0) return;
  const std::vector<PrefixId> found =
      cache_.match(active.request.salt, active.prefix, active.tokens, length, active.next_output);
  if (found.empty()) return;
  const Index final_length = length + kBlockTokens * static_cast<Index>(found.size());
  for (const PrefixId id : found) {
    active.table.append_sealed(pool_, cache_.blocks(id), final_length);
  }
  totals_.cached_tokens += final_length - length;
  set_prefix(active, found.back());
  cache_.touch(found.back());
}

// Reserves positions for the next `tokens` tokens. Evicts the prefix cache and, with `now`,
// preempts sequences until they fit. Returns false if they do not.
bool Scheduler::reserve(Active& active, Index tokens, std::vector<BlockCopy>& copies,
                        const TimeNs* now) {
  while (active.table.bytes_to_reserve(pool_, tokens) > pool_.free_bytes()) {
    if (pool_.cached_bytes() > 0 && cache_.evict_one(pool_)) continue;
    Active* victim = now == nullptr ? nullptr : find_victim(&active, *now);
    if (victim == nullptr) return false;
    preempt(*victim);
  }
  return active.table.reserve(pool_, tokens, copies);
}

void Scheduler::shrink_cache(Index bytes) {
  while (pool_.cached_bytes() > bytes && cache_.evict_one(pool_)) {
  }
}

// The sequence that loses its blocks next: the last in precedence of the parked ones, then of the
// running ones that are not part of the step and that `requester` precedes.
Scheduler::Active* Scheduler::find_victim(const Active* requester, TimeNs now) {
  Active* victim = nullptr;
  const auto key = [&](const Active& active) {
    return std::pair(active.state == State::Parked, rank(active, now));
  };
  for (auto& [id, active] : active_) {
    if (&active == requester || active.planned || active.table.length() == 0) continue;
    const bool is_behind = active.state == State::Running && requester != nullptr &&
                           rank(*requester, now) < rank(active, now);
    if (active.state != State::Parked && !is_behind) continue;
    if (victim == nullptr || key(*victim) < key(active)) victim = &active;
  }
  return victim;
}

void Scheduler::preempt(Active& active) {
  ++totals_.preemptions;
  release(active);
  if (active.state == State::Running) active.state = State::Waiting;
}

}  // namespace hone::infer
