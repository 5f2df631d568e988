// SPDX-License-Identifier: Apache-2.0
// What follows a run of the model: tokens and their events, or hidden states.
#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/infer/engine_loop.h"
#include "hone/infer/spec/verify.h"

namespace hone::infer {
namespace {

constexpr Index kLogitRows = 32;  // at a time: 16 MiB for a vocabulary of 128k

}  // namespace

// Gives each wanted row its logits, some rows at a time, but all of a sequence that generates.
// Sequences that are only read keep their hidden states instead.
void EngineLoop::take_outputs(std::span<Wanted> wanted) {
  const auto is_read = [](const Wanted& one) { return one.live->read != nullptr; };
  Index first = 0;
  while (!wanted.empty()) {
    Index count = wanted.front().planned->outputs();
    std::size_t size = 1;
    if (is_read(wanted.front())) {
      take_states(wanted.front(), first);
    } else {
      while (size < wanted.size() && !is_read(wanted[size]) &&
             count + wanted[size].planned->outputs() <= kLogitRows) {
        count += wanted[size++].planned->outputs();
      }
      take_group(wanted.first(size), first, count);
    }
    first += count;
    wanted = wanted.subspan(size);
  }
}

// Wanted rows first… are those of a text that is read.
void EngineLoop::take_states(const Wanted& wanted, Index first) {
  const PlannedSequence& planned = *wanted.planned;
  HiddenStates& states = wanted.live->read->states;
  if (planned.outputs() == 0) return;  // what was read before, after a preemption
  const Index at = planned.first_position + planned.first_output;
  runner_.copy_hidden(first, planned.outputs(), states.values.data() + at * states.width);
}

// Wanted rows first … first + count - 1 are those of `group`.
void EngineLoop::take_group(std::span<Wanted> group, Index first, Index count) {
  if (count == 0) return;
  std::span<float> logits = runner_.logits(first, count);
  const std::size_t vocab = logits.size() / static_cast<std::size_t>(count);
  for (Wanted& one : group) {
    const std::size_t size = static_cast<std::size_t>(one.planned->outputs()) * vocab;
    one.logits = logits.first(size);
    logits = logits.subspan(size);
  }
  if (group.size() > 1) choose_tokens(group);
  for (Wanted& one : group) {
    if (!one.logits.empty()) attempt(one, [&] { verify(one); });
  }
}

// Samples for all sequences without drafts in parallel, as each draw depends on nothing but its own
// sequence. A round with drafts is left to verify(), because the reader of its first token may
// cancel the rest.
void EngineLoop::choose_tokens(std::span<Wanted> group) {
  executor_.parallel_for(std::ssize(group), 1, [&](Index begin, Index end, int) {
    for (Index i = begin; i < end; ++i) {
      Wanted& one = group[static_cast<std::size_t>(i)];
      if (one.logits.empty() || one.planned->drafts > 0) continue;
      attempt(one, [&] { one.event = one.live->sequence->accept(one.logits, clock_); });
    }
  });
}

// A failure ends the request alone.
void EngineLoop::attempt(Wanted& wanted, FunctionRef<void()> work) {
  if (wanted.result.status != StepStatus::Done) return;
  try {
    work();
  } catch (...) {
    wanted.live->failure = std::current_exception();
    wanted.result.status = StepStatus::Failed;
  }
}

// Appends the drafts that the model confirms and the token after them, and delivers each at once.
void EngineLoop::verify(Wanted& wanted) {
  Live& live = *wanted.live;
  const RequestId id = wanted.result.id;
  const PlannedSequence& planned = *wanted.planned;
  const auto drafts = std::span(planned.tokens).last(static_cast<std::size_t>(planned.drafts));
  const std::size_t vocab = wanted.logits.size() / (drafts.size() + 1);
  const auto accept = [&](Index i) {
    const auto at = static_cast<std::size_t>(i);
    DrawnDraft drawn;
    if (at < drafts.size())
      drawn = {.id = drafts[at], .distribution = speculator_->distribution(id, i)};
    return live.sequence->accept(wanted.logits.subspan(at * vocab, vocab), clock_,
                                 drawn.distribution.empty() ? nullptr : &drawn);
  };
  std::optional<Event> last;  // delivered when the round has been counted
  const auto choose = [&](Index i) -> ChosenToken {
    Event event = wanted.event ? *std::exchange(wanted.event, std::nullopt) : accept(i);
    const TokenId token = *event.token;
    if (event.finished) {
      last = std::move(event);
    } else {
      push(live, id, std::move(event));
    }
    const bool is_cancelled = live.sequence->cancelled().load(std::memory_order_relaxed);
    return {token, last || is_cancelled};
  };
  const VerifiedRun run = verify_by_choice(drafts, choose);
  wanted.result.tokens = run.tokens;
  wanted.result.finished = last.has_value();
  const Index text_rows = std::ssize(planned.tokens) - planned.drafts;
  hold(live, planned, text_rows + std::ssize(run.tokens) - 1);
  if (speculator_) speculator_->record(id, planned.drafts, run);
  if (last) push(live, id, std::move(*last));
}

}  // namespace hone::infer
