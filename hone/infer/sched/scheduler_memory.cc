// SPDX-License-Identifier: Apache-2.0
// Who gets the blocks of the KV cache, and who loses them.
#include <algorithm>
#include <map>
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
  const Index cached_before = active.cached, reached_before = active.reached;
  take_shared_blocks(active);
  take_cached_blocks(active);
  const State before = std::exchange(active.state, State::Running);
  Index spare = 0;
  for (Index g = 0; g < pool_.groups(); ++g) spare += (running() - 1) * pool_.block_bytes(g);
  const Index text =
      kv_peak_bytes(options_.groups, static_cast<Index>(active.tokens.size()), options_.max_rows);
  while (text + spare > pool_.free_bytes() + pool_.cached_bytes() + active.table.bytes(pool_)) {
    Active* victim = find_victim(nullptr, now);
    if (victim == nullptr) {
      active.state = before;
      totals_.cached_tokens = taken_before;
      active.cached = cached_before;
      active.reached = reached_before;
      release(active);
      return false;
    }
    preempt(*victim, now);
  }
  if (before == State::Waiting) active.waited += now - active.waits_since;
  totals_.started_tokens += static_cast<Index>(active.tokens.size());
  return true;
}

// Counts the tokens from `length` on that the table has got without computing them. Those that were
// computed before the sequence lost its blocks do not count for the request.
void Scheduler::count_cached(Active& active, Index length) {
  const Index end = active.table.length();
  totals_.cached_tokens += end - length;
  active.cached += std::max<Index>(0, end - std::max(length, active.reached));
  active.reached = std::max(active.reached, end);
}

void Scheduler::take_shared_blocks(Active& active) {
  const Active* parent = parent_of(active);
  if (parent == nullptr || active.table.length() > 0) return;
  const Index length = std::min(shared_with(active, *parent), parent->table.length());
  if (!parent->table.can_fork(length)) return;
  active.table.fork(pool_, parent->table, length);
  count_cached(active, 0);
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
  count_cached(active, length);
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
    preempt(*victim, *now);
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

void Scheduler::preempt(Active& active, TimeNs now) {
  ++totals_.preemptions;
  release(active);
  if (active.state != State::Running) return;
  active.state = State::Waiting;
  active.waits_since = now;
}

// Gives sequences that wait places and memory, in order of service, as long as others have less
// right to run.
void Scheduler::make_way(const std::vector<Active*>& order, TimeNs now) {
  for (Active* active : order) {
    if (!can_start(*active)) continue;
    if (find_loser(*active, now) == nullptr) return;
    while (running() >= options_.max_running || !start(*active, now)) {
      Active* loser = find_loser(*active, now);
      if (loser == nullptr) return;
      preempt(*loser, now);
    }
  }
}

// The running sequence that has to wait instead of `requester`: the last one of a worse class, or
// of a tenant that has too much. Null if there is none.
Scheduler::Active* Scheduler::find_loser(const Active& requester, TimeNs now) {
  Active* loser = nullptr;
  for (auto& [id, active] : active_) {
    if (active.state != State::Running) continue;
    if (priority_class(active, now) <= priority_class(requester, now)) continue;
    if (loser == nullptr || rank(*loser, now) < rank(active, now)) loser = &active;
  }
  return loser != nullptr ? loser : find_rich(requester, now);
}

// The last sequence of the tenant with the most places or memory, whichever is short, if that is
// more than an equal share and the tenant of `requester` has less than that.
Scheduler::Active* Scheduler::find_rich(const Active& requester, TimeNs now) {
  const bool lacks_place = running() >= options_.max_running;
  const Index total = lacks_place ? options_.max_running : pool_.budget_bytes();
  std::map<std::uint64_t, Index> held;
  for (const auto& [id, active] : active_) {
    const Index own = lacks_place ? 1 : active.table.bytes(pool_);
    held[active.request.salt] += active.state == State::Running ? own : 0;
  }
  const Index share = std::max<Index>(1, total / std::ssize(held));
  if (held[requester.request.salt] >= share) return nullptr;
  const auto most =
      std::ranges::max_element(held, {}, [](const auto& entry) { return entry.second; });
  if (most->second <= share) return nullptr;
  Active* last = nullptr;
  for (auto& [id, active] : active_) {
    if (active.state != State::Running || active.request.salt != most->first) continue;
    if (priority_class(active, now) < priority_class(requester, now)) continue;
    if (last == nullptr || last->arrival < active.arrival) last = &active;
  }
  return last;
}

}  // namespace hone::infer
