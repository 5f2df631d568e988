// SPDX-License-Identifier: Apache-2.0
// What follows a run of the model: tokens, scores and their events.
#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/infer/engine_loop.h"
#include "hone/infer/spec/verify.h"
#include "hone/kernels/norm/log_sum_exp.h"

namespace hone::infer {
namespace {

constexpr Index kLogitRows = 32;  // at a time: 16 MiB for a vocabulary of 128k

}  // namespace

// Gives each wanted row its logits, some rows at a time, but all of a sequence that generates.
void EngineLoop::take_outputs(std::span<Wanted> wanted) {
  Index first = 0;
  while (!wanted.empty()) {
    Index count = wanted.front().planned->outputs();
    std::size_t size = 1;
    while (size < wanted.size() && count + wanted[size].planned->outputs() <= kLogitRows) {
      count += wanted[size++].planned->outputs();
    }
    take_group(wanted.first(size), first, count);
    first += count;
    wanted = wanted.subspan(size);
  }
}

// Wanted rows first … first + count - 1 are those of `group`. More than kLogitRows belong to one
// sequence, which is scored.
void EngineLoop::take_group(std::span<Wanted> group, Index first, Index count) {
  for (Index row = 0; count > kLogitRows && row < count; row += kLogitRows) {
    const std::span<float> logits = runner_.logits(first + row, std::min(kLogitRows, count - row));
    attempt(group.front(), [&] { score_rows(group.front(), row, logits); });
  }
  if (count == 0 || count > kLogitRows) return;
  std::span<float> logits = runner_.logits(first, count);
  const std::size_t vocab = logits.size() / static_cast<std::size_t>(count);
  for (Wanted& one : group) {
    const std::size_t size = static_cast<std::size_t>(one.planned->outputs()) * vocab;
    one.logits = logits.first(size);
    logits = logits.subspan(size);
  }
  if (group.size() > 1) choose_tokens(group);
  for (Wanted& one : group) {
    if (one.logits.empty()) continue;
    attempt(one, [&] {
      if (one.live->sequence) {
        verify(one);
      } else {
        score_rows(one, 0, one.logits);
      }
    });
  }
}

// Samples for all sequences without drafts in parallel, as each draw depends on nothing but its own
// sequence. A round with drafts is left to verify(), because the reader of its first token may
// cancel the rest.
void EngineLoop::choose_tokens(std::span<Wanted> group) {
  executor_.parallel_for(std::ssize(group), 1, [&](Index begin, Index end, int) {
    for (Index i = begin; i < end; ++i) {
      Wanted& one = group[static_cast<std::size_t>(i)];
      if (one.logits.empty() || !one.live->sequence || one.planned->drafts > 0) continue;
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
    if (at < drafts.size()) drawn = {.id = drafts[at], .law = speculator_->law(id, i)};
    return live.sequence->accept(wanted.logits.subspan(at * vocab, vocab), clock_,
                                 drawn.law.empty() ? nullptr : &drawn);
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

// Rows first… of those that the text wants.
void EngineLoop::score_rows(const Wanted& wanted, Index first, std::span<const float> logits) {
  ScoreJob& job = *wanted.live->score;
  first += wanted.planned->first_position + wanted.planned->first_output;
  const std::span<double> logprobs =
      std::span(job.result.logprobs).subspan(static_cast<std::size_t>(first));
  const Index vocab = runner_.vocab_size(), rows = std::ssize(logits) / vocab;
  executor_.parallel_for(rows, 1, [&](Index begin, Index end, int) {
    for (Index row = begin; row < end; ++row) {
      const float* line = logits.data() + row * vocab;
      const TokenId target = job.targets[static_cast<std::size_t>(first + row)];
      logprobs[static_cast<std::size_t>(row)] = line[target] - kernels::log_sum_exp(line, vocab);
    }
  });
  if (job.options->on_logits) job.options->on_logits(first + 1, rows, logits);
}

}  // namespace hone::infer
