// SPDX-License-Identifier: Apache-2.0
// What runs in a step; scheduler.cc takes the results, scheduler_memory.cc finds the blocks.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "hone/core/check.h"
#include "hone/infer/sched/scheduler.h"

namespace hone::infer {
namespace {

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
  Step step;
  plan_decodes(step, order, now);
  step.plan.decode_seconds = cost_.predict(step.plan.shape);
  for (Active* active : order) {
    const bool prefills = active->state == State::Running && !active->planned;
    if (prefills && !step.is_full) plan_chunk(step, *active, now);
  }
  for (Active* active : order) {
    const bool is_startable =
        active->state == State::Waiting || (active->state == State::Parked && active->has_room());
    if (!is_startable || waits_for_parent(*active)) continue;
    if (step.is_full || grant(step, *active) == 0) break;
    if (running() >= options_.max_running || !start(*active, now)) break;
    plan_chunk(step, *active, now);
  }
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

// A smaller pair precedes.
std::pair<Index, Index> Scheduler::rank(const Active& active, TimeNs now) const {
  const double classes = std::floor(seconds_between(active.arrived, now) / options_.ageing_seconds);
  const double aged = static_cast<double>(active.request.priority) - classes;
  return {static_cast<Index>(std::fmax(0, aged)), active.arrival};
}

std::vector<Scheduler::Active*> Scheduler::in_order(TimeNs now) {
  std::vector<Active*> order;
  for (auto& [id, active] : active_) order.push_back(&active);
  std::ranges::sort(order, {}, [&](const Active* active) { return rank(*active, now); });
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
    preempt(active);
    return 0;
  }
  StepShape& shape = step.plan.shape;
  shape.decode_rows += 1 + count;
  shape.kv_tokens += kv_tokens(active.table.length(), 1 + count);
  add_rows(step, active, 1, std::span(guesses).first(static_cast<std::size_t>(count)));
  return count;
}

void Scheduler::plan_chunk(Step& step, Active& active, TimeNs now) {
  take_cached_blocks(active);
  if (is_computed_by_another(step, active)) return;
  Index rows = grant(step, active);
  step.is_full = rows == 0;
  while (rows > 0 && !reserve(active, rows, step.plan.copies, &now)) {
    rows = rows / 2 / grain() * grain();
  }
  if (rows == 0) return;
  note_computing(step, active, rows);
  step.plan.shape = with_prefill(step.plan.shape, active.table.length(), rows);
  add_rows(step, active, rows, {});
}

// How many tokens the sequence may prefill in this step.
Index Scheduler::grant(const Step& step, const Active& active) const {
  const StepShape& shape = step.plan.shape;
  const Index pending = active.pending(), first = active.table.length();
  const auto down = [this](Index rows) { return rows / grain() * grain(); };
  const Index left = std::min(options_.prefill_chunk, options_.max_rows - shape.decode_rows) -
                     shape.prefill_tokens;
  Index rows = pending <= left ? pending : down(left);
  if (shape.decode_rows == 0) return rows;
  const double target =
      std::max(options_.slowdown * step.plan.decode_seconds, options_.least_target_seconds);
  while (rows > 0 && cost_.predict(with_prefill(shape, first, rows)) > target) {
    const auto fewer = static_cast<std::uint64_t>(rows - 1);
    rows = rows > grain() ? down(rows - 1) : static_cast<Index>(std::bit_floor(fewer));
  }
  if (rows > 0 || shape.prefill_tokens > 0) return rows;
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
