// SPDX-License-Identifier: Apache-2.0
// What runs in a step; scheduler.cc takes the results, scheduler_memory.cc finds the blocks.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>

#include "hone/core/check.h"
#include "hone/infer/sched/scheduler.h"

namespace hone::infer {
namespace {

constexpr Index kLeastPrefill =
    128;  // tokens of a step that SchedulerOptions::prefill_seconds ends

// The positions that `rows` rows from `first` on read.
Index kv_tokens(Index first, Index rows) { return rows * first + rows * (rows + 1) / 2; }

StepShape with_prefill(StepShape shape, Index first, Index rows) {
  shape.prefill_tokens += rows;
  shape.kv_tokens += kv_tokens(first, rows);
  return shape;
}

}  // namespace

StepPlan Scheduler::plan(TimeNs now) {
  HONE_REQUIRE(!in_progress_.has_value(), "plan", "The last plan has not been applied.");
  expire(now);
  const std::vector<Active*> order = in_order(now);
  park_and_resume(order, now);
  make_way(order, now);
  Step step;
  plan_decodes(step, order, now);
  step.plan.decode_seconds = cost_.predict(step.plan.shape);
  plan_prefill(step, order, now);
  step.plan.predicted_seconds = cost_.predict(step.plan.shape);
  if (!step.plan.empty()) in_progress_ = step.plan;
  return std::move(step.plan);
}

void Scheduler::expire(TimeNs now) {
  for (auto it = active_.begin(); it != active_.end();) {
    Active& active = (it++)->second;
    if (active.request.deadline && *active.request.deadline <= now) {
      end(active, EndCause::DeadlinePassed);
    } else if (active.state == State::Parked && !active.has_room() && stall_time(active) <= now) {
      end(active, EndCause::Stalled);
    }
  }
}

TimeNs Scheduler::stall_time(const Active& active) const {
  return active.parked_at + std::llround(options_.stall_seconds * 1e9);
}

// A smaller class is better.
Index Scheduler::priority_class(const Active& active, TimeNs now) const {
  const bool waits = active.state == State::Waiting;
  const double waited = 1e-9 * static_cast<double>(active.waited) +
                        (waits ? seconds_between(active.waits_since, now) : 0);
  const double classes = std::floor(waited / options_.ageing_seconds);
  return static_cast<Index>(std::fmax(0, static_cast<double>(active.request.priority) - classes));
}

// The order of precedence: a smaller pair precedes.
std::pair<Index, Index> Scheduler::rank(const Active& active, TimeNs now) const {
  return {priority_class(active, now), active.arrival};
}

// In order of service.
std::vector<Scheduler::Active*> Scheduler::in_order(TimeNs now) {
  std::vector<Active*> order;
  for (auto& [id, active] : active_) order.push_back(&active);
  std::ranges::sort(order, {}, [&](const Active* active) {
    return std::tuple(priority_class(*active, now), tenants_.at(active->request.salt).served,
                      active->arrival);
  });
  return order;
}

Index Scheduler::running() const {
  return std::ranges::count_if(
      active_, [](const auto& entry) { return entry.second.state == State::Running; });
}

// Sequences that kept their blocks go on as soon as there is a place. Those that lost them start
// again.
void Scheduler::park_and_resume(const std::vector<Active*>& order, TimeNs now) {
  for (Active* active : order) {
    if (active->state != State::Running || active->has_room()) continue;
    active->state = State::Parked;
    active->parked_at = now;
  }
  for (Active* active : order) {
    const bool goes_on = active->state == State::Parked && active->has_room() &&
                         active->table.length() > 0 && running() < options_.max_running;
    if (goes_on) active->state = State::Running;
  }
}

void Scheduler::plan_decodes(Step& step, const std::vector<Active*>& order, TimeNs now) {
  const auto decodes = [](const Active* active) {
    return active->state == State::Running && active->is_decoding();
  };
  // Drafts leave room for a prefill chunk and for the decodes that follow.
  Index spare = options_.max_rows - grain() - std::ranges::count_if(order, decodes);
  for (Active* active : order) {
    if (decodes(active)) spare -= plan_decode(step, *active, spare, now);
  }
}

// Returns the number of drafts that it added, at most `spare`.
Index Scheduler::plan_decode(Step& step, Active& active, Index spare, TimeNs now) {
  const std::vector<TokenId> guesses = std::exchange(active.drafts, {});
  Index count = std::min(
      {static_cast<Index>(guesses.size()), std::max<Index>(spare, 0), active.most_drafts()});
  if (count > 0 && !reserve(active, 1 + count, step.plan.copies, nullptr)) count = 0;
  if (count == 0 && !reserve(active, 1, step.plan.copies, &now)) {
    preempt(active, now);
    return 0;
  }
  StepShape& shape = step.plan.shape;
  shape.decode_rows += 1 + count;
  shape.kv_tokens += kv_tokens(active.table.length(), 1 + count);
  add_rows(step, active, 1, std::span(guesses).first(static_cast<std::size_t>(count)));
  return count;
}

bool Scheduler::can_start(const Active& active) {
  const bool waits =
      active.state == State::Waiting || (active.state == State::Parked && active.has_room());
  return waits && !waits_for_parent(active);
}

// Starts the sequence if it does not run. Returns false if it can have no chunk.
bool Scheduler::make_ready(Step& step, Active& active, TimeNs now) {
  if (active.planned) return false;
  if (active.state == State::Running) return true;
  if (!can_start(active) || step.is_full) return false;
  if (grant(step, active) == 0) {
    step.is_full = true;  // a shorter text may not take its turn
    return false;
  }
  const Index own_class = priority_class(active, now);
  if (own_class >= step.blocked_class) return false;
  if (running() < options_.max_running && start(active, now)) return true;
  step.blocked_class = own_class;
  return false;
}

// If the first sequence would take all tokens, it leaves a part of them to others, shortest first.
// What is left goes to all in order.
void Scheduler::plan_prefill(Step& step, const std::vector<Active*>& order, TimeNs now) {
  const auto head =
      std::ranges::find_if(order, [&](Active* active) { return make_ready(step, *active, now); });
  if (head == order.end()) return;
  take_cached_blocks(**head);
  const Index rows = grant(step, **head);
  std::vector<Active*> followers;
  if (rows < (*head)->pending()) {
    followers = choose_followers(step, **head, {head + 1, order.end()}, rows, now);
  }
  Index quota = 0;
  for (const Active* active : followers) quota += active->pending();
  quota = std::min(quota, static_cast<Index>(followers_credit_));
  if (quota < rows) plan_chunk(step, **head, rows - quota, now);
  for (Active* active : followers) {
    if (active->state != State::Running) continue;  // a chunk before took its blocks
    const Index before = step.plan.shape.prefill_tokens;
    plan_chunk(step, *active, quota, now);
    const Index taken = step.plan.shape.prefill_tokens - before;
    quota -= taken;
    followers_credit_ -= static_cast<double>(taken);
    if (quota <= 0) break;
  }
  for (Active* active : order) {
    if (!step.is_full && make_ready(step, *active, now)) {
      plan_chunk(step, *active, options_.max_rows, now);
    }
  }
}

// The sequences of the same class behind `head` that have tokens of this step, of which `head`
// alone could have `rows`. Those whose next tokens it computes wait for them instead.
std::vector<Scheduler::Active*> Scheduler::choose_followers(const Step& step, const Active& head,
                                                            std::vector<Active*> others, Index rows,
                                                            TimeNs now) {
  constexpr double kShare = 0.25;
  const Index own_class = priority_class(head, now);
  std::erase_if(others, [&](const Active* active) {
    return active->planned || priority_class(*active, now) > own_class;
  });
  if (others.empty()) {
    followers_credit_ = 0;
    return {};
  }
  const double most = static_cast<double>(options_.prefill_chunk);
  followers_credit_ = std::min(most, followers_credit_ + kShare * static_cast<double>(rows));
  std::ranges::stable_sort(others, {}, [](const Active* active) { return active->pending(); });
  Step probe;
  probe.plan.shape = step.plan.shape;
  probe.plan.decode_seconds = step.plan.decode_seconds;
  probe.blocked_class = step.blocked_class;
  note_computing(probe, head, rows);
  std::vector<Active*> chosen;
  auto left = static_cast<Index>(followers_credit_);
  for (Active* active : others) {
    if (left <= 0) break;
    if (!make_ready(probe, *active, now)) continue;
    take_cached_blocks(*active);
    if (is_computed_by_another(probe, *active)) continue;
    chosen.push_back(active);
    left -= active->pending();
  }
  return chosen;
}

// Up to `most` tokens of the sequence.
void Scheduler::plan_chunk(Step& step, Active& active, Index most, TimeNs now) {
  take_cached_blocks(active);
  if (is_computed_by_another(step, active)) return;
  const Index granted = grant(step, active);
  step.is_full = granted == 0;
  Index rows = std::min(granted, most);
  if (rows < active.pending()) rows = whole_chunk(rows);
  while (rows > 0 && !reserve(active, rows, step.plan.copies, &now)) {
    rows = rows / 2 / grain() * grain();
  }
  if (rows == 0) return;
  note_computing(step, active, rows);
  step.plan.shape = with_prefill(step.plan.shape, active.table.length(), rows);
  add_rows(step, active, rows, {});
}

// The largest size of a chunk that does not end its text, up to `rows`.
Index Scheduler::whole_chunk(Index rows) const {
  if (rows >= grain()) return rows / grain() * grain();
  return static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(std::max<Index>(0, rows))));
}

// How many tokens the sequence may prefill in this step.
Index Scheduler::grant(const Step& step, const Active& active) const {
  const StepShape& shape = step.plan.shape;
  const Index pending = active.pending(), first = active.table.length();
  const auto down = [this](Index rows) { return rows / grain() * grain(); };
  const Index left = std::min(options_.prefill_chunk, options_.max_rows - shape.decode_rows) -
                     shape.prefill_tokens;
  Index rows = pending <= left ? pending : down(left);
  const bool has_decodes = shape.decode_rows > 0;
  if (!has_decodes && options_.prefill_seconds == 0) return rows;
  const double target = has_decodes ? std::max(options_.slowdown * step.plan.decode_seconds,
                                               options_.least_target_seconds)
                                    : options_.prefill_seconds;
  const Index least = has_decodes ? 0 : std::min(rows, kLeastPrefill - shape.prefill_tokens);
  while (rows > std::max<Index>(0, least) &&
         cost_.predict(with_prefill(shape, first, rows)) > target) {
    const auto fewer = static_cast<std::uint64_t>(rows - 1);
    rows = rows > grain() ? down(rows - 1) : static_cast<Index>(std::bit_floor(fewer));
  }
  if (rows > 0 || shape.prefill_tokens > 0 || !has_decodes) return rows;
  return std::min<Index>(left, 1);
}

// Whether the next block of the sequence is part of another sequence's chunk, so that it can be
// taken from there after the step.
bool Scheduler::is_computed_by_another(const Step& step, const Active& active) const {
  const Index begin = active.table.length(), end = begin + kBlockTokens;
  if (active.prefix == kLostPrefix || begin % kBlockTokens != 0) return false;
  if (end > active.next_output || step.computing.empty()) return false;
  const auto ids = std::span(active.tokens).subspan(static_cast<std::size_t>(begin), kBlockTokens);
  const PrefixKey parent = cache_.key(active.request.salt, active.prefix);
  return step.computing.contains(cache_.key_after(parent, ids));
}

void Scheduler::note_computing(Step& step, const Active& active, Index rows) const {
  if (active.prefix == kLostPrefix) return;
  PrefixKey key = cache_.key(active.request.salt, active.prefix);
  const Index begin = active.table.length() / kBlockTokens * kBlockTokens;
  const Index end = std::min(active.table.length() + rows + kBlockTokens - 1,
                             static_cast<Index>(active.tokens.size()));
  for (Index i = begin; i + kBlockTokens <= end; i += kBlockTokens) {
    key = cache_.key_after(
        key, std::span(active.tokens).subspan(static_cast<std::size_t>(i), kBlockTokens));
    step.computing.insert(key);
  }
}

void Scheduler::add_rows(Step& step, Active& active, Index rows, std::span<const TokenId> drafts) {
  const Index first = active.table.length();
  PlannedSequence planned{
      .id = active.request.id, .kind = active.request.kind, .first_position = first};
  const auto begin = active.tokens.begin() + first;
  planned.cached = active.cached;
  planned.tokens.assign(begin, begin + rows);
  planned.tokens.insert(planned.tokens.end(), drafts.begin(), drafts.end());
  planned.drafts = static_cast<Index>(drafts.size());
  planned.first_output =
      std::clamp<Index>(active.next_output - first, 0, static_cast<Index>(planned.tokens.size()));
  for (Index g = 0; g < pool_.groups(); ++g) {
    const auto ids = active.table.blocks(g);
    planned.blocks.emplace_back(ids.begin(), ids.end());
  }
  active.planned = true;
  step.plan.sequences.push_back(std::move(planned));
}

}  // namespace hone::infer
