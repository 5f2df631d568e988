// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sched/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "hone/core/check.h"

namespace hone::infer {
namespace {

constexpr double kNobodyServed = std::numeric_limits<double>::infinity();

// The longest text up to `context` whose blocks fit into the cache when it is alone.
Index longest_text(const SchedulerOptions& options) {
  Index low = 0, high = options.context;
  while (low < high) {
    const Index middle = high - (high - low) / 2;
    const bool fits = kv_peak_bytes(options.groups, middle, options.max_rows) <= options.kv_bytes;
    (fits ? low : high) = fits ? middle : middle - 1;
  }
  return low;
}

const SchedulerOptions& checked(const SchedulerOptions& options) {
  HONE_CHECK(options.context >= 2, "scheduler", "a context of at least 2 tokens", options.context);
  HONE_CHECK(options.max_running >= 1, "scheduler", "max_running of at least 1",
             options.max_running);
  HONE_CHECK(options.max_queue >= 1, "scheduler", "max_queue of at least 1", options.max_queue);
  HONE_CHECK(options.prefill_chunk >= 1 &&
                 options.prefill_chunk % std::min(kChunkTokens, options.prefill_chunk) == 0,
             "scheduler", concat("a prefill_chunk below or in multiples of ", kChunkTokens),
             options.prefill_chunk);
  const Index rows = std::max(options.max_running + kChunkTokens, options.prefill_chunk);
  HONE_CHECK(options.max_rows >= rows, "scheduler", concat("max_rows of at least ", rows),
             options.max_rows);
  HONE_CHECK(options.slowdown >= 1, "scheduler", "a slowdown of at least 1", options.slowdown);
  HONE_CHECK(options.least_target_seconds >= 0, "scheduler", "a target of at least 0 s",
             options.least_target_seconds);
  HONE_CHECK(options.prefill_seconds >= 0, "scheduler", "a prefill time of at least 0 s",
             options.prefill_seconds);
  HONE_CHECK(options.ageing_seconds > 0, "scheduler", "a positive ageing time",
             options.ageing_seconds);
  HONE_CHECK(options.stall_seconds > 0, "scheduler", "a positive stall time",
             options.stall_seconds);
  return options;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(checked(options)),
      pool_(kv_block_sizes(options.groups), options.kv_bytes),
      cache_(options.groups, options.prefix_secret, options.extend_key),
      max_length_(longest_text(options)) {
  HONE_CHECK(max_length_ >= 2, "scheduler", "KV memory for a text of at least 2 tokens",
             concat(options.kv_bytes, " bytes"));
}

void Scheduler::check(const Submission& submission) const {
  const auto length = static_cast<Index>(submission.tokens.size());
  HONE_CHECK(!active_.contains(submission.id), "submit", "an unused id", submission.id);
  HONE_CHECK(length >= 1, "submit", "at least one token", length);
  HONE_CHECK(submission.first_output >= 0 && submission.first_output < length, "submit",
             concat("a first output below ", length), submission.first_output);
  if (submission.kind == RequestKind::Generate) {
    HONE_CHECK(submission.max_tokens >= 1, "submit", "max_tokens of at least 1",
               submission.max_tokens);
    HONE_CHECK(submission.room >= 2, "submit", "an event ring with at least 2 free slots",
               submission.room);
  } else {
    HONE_CHECK(submission.max_tokens == 0, "submit", "no new tokens", submission.max_tokens);
  }
}

std::optional<Refusal> Scheduler::submit(Submission submission, TimeNs now) {
  check(submission);
  ++totals_.submitted;
  const auto refuse = [this](Refusal refusal) {
    ++totals_.rejected;
    return refusal;
  };
  const auto length = static_cast<Index>(submission.tokens.size());
  const Index shortest = length + (submission.kind == RequestKind::Generate ? 1 : 0);
  if (shortest > max_length_) return refuse(Refusal::PromptTooLong);
  if (submission.deadline && *submission.deadline <= now) return refuse(Refusal::DeadlinePassed);
  const SchedulerCounters current = counters();
  if (current.waiting + current.parked >= options_.max_queue) return refuse(Refusal::QueueFull);
  Active active{.request = std::move(submission), .table = BlockTable(options_.groups)};
  active.tokens = active.request.tokens;
  active.longest = length + std::min(active.request.max_tokens, max_length_ - length);
  active.next_output = active.request.first_output;
  active.arrival = ++arrivals_;
  enter(active, now);
  const RequestId id = active.request.id;
  active_.emplace(id, std::move(active));
  return std::nullopt;
}

// A tenant that had no requests does not make up for the time before.
void Scheduler::enter(Active& active, TimeNs now) {
  active.waits_since = now;
  Tenant& tenant = tenants_[active.request.salt];
  if (tenant.requests++ == 0) tenant.served = std::max(tenant.served, least_served_);
}

// Forgets tenants that have been served no more than others.
void Scheduler::leave(const Active& active) {
  --tenants_.at(active.request.salt).requests;
  double least = kNobodyServed;
  for (const auto& [salt, tenant] : tenants_) {
    if (tenant.requests > 0) least = std::min(least, tenant.served);
  }
  if (least != kNobodyServed) least_served_ = std::max(least_served_, least);
  std::erase_if(tenants_, [&](const auto& entry) {
    const Tenant& tenant = entry.second;
    return tenant.requests == 0 && (least == kNobodyServed || tenant.served <= least_served_);
  });
}

// A token that is generated takes the model as long as several of a prompt.
void Scheduler::serve(const Active& active, Index prefilled, Index generated) {
  constexpr double kGenerated = 4;
  tenants_.at(active.request.salt).served +=
      static_cast<double>(prefilled) + kGenerated * static_cast<double>(generated);
}

void Scheduler::cancel(RequestId id) {
  const auto found = active_.find(id);
  if (found == active_.end()) return;
  if (found->second.planned) {
    found->second.cancel_asked = true;
  } else {
    end(found->second, EndCause::Cancelled);
  }
}

void Scheduler::set_room(RequestId id, Index room) {
  const auto found = active_.find(id);
  if (found != active_.end()) found->second.request.room = room;
}

void Scheduler::restart_stall(RequestId id, TimeNs now) {
  const auto found = active_.find(id);
  if (found != active_.end()) found->second.parked_at = now;
}

void Scheduler::set_drafts(RequestId id, std::vector<TokenId> drafts) {
  const auto found = active_.find(id);
  if (found != active_.end()) found->second.drafts = std::move(drafts);
}

std::vector<Scheduler::Decoding> Scheduler::decoding() const {
  std::vector<Decoding> result;
  for (const auto& [id, active] : active_) {
    if (active.state != State::Running || !active.is_decoding() || !active.has_room()) continue;
    result.push_back({.id = id, .most_drafts = active.most_drafts()});
  }
  return result;
}

void Scheduler::apply(const StepResult& result) {
  HONE_REQUIRE(in_progress_.has_value(), "apply", "There is no plan in progress.");
  const StepPlan plan = *std::exchange(in_progress_, std::nullopt);
  std::map<RequestId, const SequenceResult*> results;
  for (const SequenceResult& one : result.sequences) results[one.id] = &one;
  bool is_computed = true;
  for (const PlannedSequence& planned : plan.sequences) {
    Active& active = active_.at(planned.id);
    const auto found = results.find(planned.id);
    const StepStatus status =
        found == results.end() ? StepStatus::NotComputed : found->second->status;
    is_computed &= status != StepStatus::NotComputed;
    active.planned = false;
    if (active.cancel_asked) {
      end(active, EndCause::Cancelled);
    } else if (status == StepStatus::Failed) {
      end(active, EndCause::Failed);
    } else if (status == StepStatus::NotComputed) {
      active.table.commit(pool_, 0);
    } else {
      commit(active, planned, *found->second);
    }
  }
  if (is_computed) cost_.observe(plan.shape, result.seconds);
}

void Scheduler::commit(Active& active, const PlannedSequence& planned,
                       const SequenceResult& result) {
  const Index rows = static_cast<Index>(planned.tokens.size()) - planned.drafts;
  const bool completes = active.pending() == rows;
  const bool samples = completes && active.request.kind == RequestKind::Generate;
  const auto emitted = static_cast<Index>(result.tokens.size());
  HONE_CHECK(samples ? emitted >= 1 && emitted <= 1 + planned.drafts : emitted == 0, "apply",
             samples ? concat("1 to ", 1 + planned.drafts, " tokens") : "no tokens", emitted);
  const Index accepted = samples ? emitted - 1 : 0;
  const auto drafts = std::span(planned.tokens).subspan(static_cast<std::size_t>(rows));
  HONE_REQUIRE(std::equal(drafts.begin(), drafts.begin() + accepted, result.tokens.begin()),
               "apply", "The accepted tokens differ from the drafts.");
  serve(active, active.is_decoding() ? 0 : rows, emitted);
  active.tokens.insert(active.tokens.end(), result.tokens.begin(), result.tokens.end());
  active.drafts.clear();
  const Index first_block = active.table.length() / kBlockTokens;
  active.table.commit(pool_, rows + accepted);
  active.reached = std::max(active.reached, active.table.length());
  active.next_output = std::max(active.next_output, active.table.length());
  share_new_blocks(active, first_block);
  active.table.trim(pool_);
  const bool is_full = static_cast<Index>(active.tokens.size()) >= active.longest;
  if (result.finished || (completes && is_full)) end(active, EndCause::Finished);
}

// Puts the blocks from `first_block` on that are full into the prefix cache. If another sequence
// was faster, its blocks replace the new ones.
void Scheduler::share_new_blocks(Active& active, Index first_block) {
  for (Index i = first_block; i < active.table.length() / kBlockTokens; ++i) {
    const auto ids = std::span(active.tokens)
                         .subspan(static_cast<std::size_t>(i * kBlockTokens),
                                  static_cast<std::size_t>(kBlockTokens));
    std::vector<BlockId> blocks;
    for (Index g = 0; g < pool_.groups(); ++g) {
      blocks.push_back(active.table.blocks(g)[static_cast<std::size_t>(i)]);
    }
    set_prefix(active, cache_.insert(pool_, active.request.salt, active.prefix, ids, blocks));
    if (active.prefix == kLostPrefix) return;
    active.table.replace_sealed(pool_, i, cache_.blocks(active.prefix));
  }
}

void Scheduler::set_prefix(Active& active, PrefixId prefix) {
  cache_.pin(prefix);
  cache_.unpin(std::exchange(active.prefix, prefix));
}

// Gives back the blocks. The prefix cache keeps those that it has, as the ones used last.
void Scheduler::release(Active& active) {
  cache_.touch(active.prefix);
  set_prefix(active, kEmptyPrefix);
  active.table.release(pool_);
}

void Scheduler::end(Active& active, EndCause cause) {
  switch (cause) {
    case EndCause::Finished:
      ++totals_.finished;
      break;
    case EndCause::Failed:
      ++totals_.failed;
      break;
    case EndCause::Cancelled:
    case EndCause::DeadlinePassed:
    case EndCause::Stalled:
      ++totals_.cancelled;
  }
  const PrefixId prefix = active.prefix;
  release(active);
  if (cause == EndCause::Failed) cache_.forget(pool_, prefix);
  leave(active);
  const RequestId id = active.request.id;
  ended_.push_back({.id = id, .cause = cause});
  active_.erase(id);
}

void Scheduler::fail_all() {
  in_progress_.reset();
  while (!active_.empty()) end(active_.begin()->second, EndCause::Failed);
}

std::vector<Ended> Scheduler::take_ended() { return std::exchange(ended_, {}); }

std::optional<TimeNs> Scheduler::next_timer() const {
  std::optional<TimeNs> next;
  const auto consider = [&next](TimeNs time) { next = next ? std::min(*next, time) : time; };
  for (const auto& [id, active] : active_) {
    if (active.request.deadline) consider(*active.request.deadline);
    if (active.state == State::Parked && !active.has_room()) consider(stall_time(active));
  }
  return next;
}

SchedulerCounters Scheduler::counters() const {
  SchedulerCounters result = totals_;
  result.evictions = cache_.evictions();
  for (const auto& [id, active] : active_) {
    ++(active.state == State::Waiting ? result.waiting : result.running);
    result.parked += active.state == State::Parked;
  }
  return result;
}

void Scheduler::audit() const {
  std::vector<std::vector<Index>> counts(static_cast<std::size_t>(pool_.groups()));
  cache_.count_references(counts);
  for (const auto& [id, active] : active_) {
    HONE_REQUIRE(active.state != State::Waiting || active.table.length() == 0, "audit",
                 "A sequence that waits holds blocks.");
    for (Index g = 0; g < pool_.groups(); ++g) {
      std::vector<Index>& held = counts[static_cast<std::size_t>(g)];
      for (const BlockId block : active.table.blocks(g)) {
        if (block == kNoBlock) continue;
        const auto slot = static_cast<std::size_t>(block);
        if (held.size() <= slot) held.resize(slot + 1);
        ++held[slot];
      }
    }
  }
  pool_.audit(counts);
}

}  // namespace hone::infer
