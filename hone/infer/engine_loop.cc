// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/engine_loop.h"

#include <algorithm>
#include <random>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/machine/trace.h"
#include "hone/core/text_format.h"

namespace hone::infer {
namespace {

constexpr Index kUnbounded = Index{1} << 30;
constexpr Index kIdlePages = Index{32} << 20;     // of free blocks that stay resident
constexpr Index kScarceBytes = Index{256} << 20;  // of memory: less is too little for a reserve
constexpr std::int64_t kMemoryCheckNs = 1'000'000'000;

// Keys of prefixes cannot be predicted, so collisions cannot be planned.
PrefixSecret random_secret() {
  std::random_device device;
  const auto word = [&] { return std::uint64_t{device()} << 32 | device(); };
  return {word(), word()};
}

SchedulerOptions scheduler_options(const LoopOptions& options, std::span<const LayerGroup> groups) {
  check_kv_budget(options, groups);
  Index kv_bytes = options.kv_bytes;
  if (kv_bytes == 0) {
    kv_bytes = fitting_kv_bytes(groups, options.context, loop_rows(options), options.max_sequences,
                                options.free_bytes() / 2);
  }
  return {.groups = {groups.begin(), groups.end()},
          .kv_bytes = kv_bytes,
          .prefix_secret = random_secret(),
          .context = options.context,
          .max_running = options.max_sequences,
          .max_queue = kUnbounded,  // RequestQueue is bounded
          .prefill_chunk = options.prefill_chunk,
          .max_rows = loop_rows(options),
          .prefill_seconds = options.prefill_seconds};
}

void describe(const std::exception_ptr& failure, Event& event) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    event.error = error.what();
    event.error_category = error.category();
  } catch (const std::bad_alloc&) {
    event.error = "[engine] There is not enough memory.";
    event.error_category = ErrorCategory::Resource;
  } catch (const std::exception& error) {
    event.error = error.what();
  }
}

RefusedError deadline_error() {
  return {Refusal::DeadlinePassed, ErrorCategory::Resource,
          "[timeout] The time of the request was over before its first token."};
}

std::optional<StopCause> stop_cause(EndCause cause) {
  switch (cause) {
    case EndCause::Cancelled:
      return StopCause{.kind = StopCause::Kind::Client};
    case EndCause::DeadlinePassed:
      return StopCause{.kind = StopCause::Kind::Deadline};
    case EndCause::Stalled:
      return StopCause{.kind = StopCause::Kind::Stalled};
    default:
      return std::nullopt;
  }
}

}  // namespace

Index loop_rows(const LoopOptions& options) {
  return options.prefill_chunk + options.max_sequences + kChunkTokens;
}

LoopOptions loop_options(const EngineOptions& options, Index context) {
  const Index chunk = options.prefill_chunk;
  return {.context = context,
          .kv_bytes = options.kv_bytes,
          .max_sequences = options.max_sequences,
          .max_queue = options.max_queue,
          .prefill_chunk = chunk < kChunkTokens ? chunk : chunk / kChunkTokens * kChunkTokens,
          .max_tenant_requests = options.max_tenant_requests,
          .prefill_seconds = options.prefill_seconds,
          .on_progress = options.on_progress,
          .on_step_end = options.on_step_end};
}

void check_kv_budget(const LoopOptions& options, std::span<const LayerGroup> groups) {
  if (options.kv_bytes == 0) return;
  const Index available = options.free_bytes();
  const Index least =
      kv_peak_bytes(groups, std::min<Index>(options.context, 2), loop_rows(options));
  HONE_CHECK(options.kv_bytes <= available, "KV cache",
             concat("at most the ", format_bytes(available, ByteUnits::Binary), " that are free"),
             format_bytes(options.kv_bytes, ByteUnits::Binary));
  HONE_CHECK(options.kv_bytes >= least, "KV cache",
             concat("at least ", format_bytes(least, ByteUnits::Binary), " for a text"),
             format_bytes(options.kv_bytes, ByteUnits::Binary));
}

EngineLoop::EngineLoop(const LoopOptions& options, ModelRunner& runner,
                       const text::Tokenizer* tokenizer, std::vector<TokenId> stop_ids,
                       Executor& executor, const Clock& clock, std::unique_ptr<DraftSource> drafts)
    : runner_(runner),
      tokenizer_(tokenizer),
      stop_ids_(std::move(stop_ids)),
      executor_(executor),
      clock_(clock),
      scheduler_(scheduler_options(options, runner.kv_groups())),
      arena_(scheduler_.pool()),
      queue_(options.max_queue, options.max_tenant_requests),
      on_progress_(options.on_progress),
      on_step_end_(options.on_step_end),
      available_bytes_(options.available_bytes),
      mapped_bytes_(options.mapped_bytes) {
  if (drafts) speculator_ = std::make_unique<Speculator>(std::move(drafts), runner.vocab_size());
}

EngineLoop::~EngineLoop() {
  try {
    take_messages();
    for (auto& [id, live] : live_) {
      if (!live.has_ended && live.sequence) {
        end(live, id, FinishReason::Cancelled, stop_cause(EndCause::Cancelled));
      }
      deliver(live, live.taken_ns);
    }
  } catch (...) {  // what cannot be told now can never be told
  }
}

bool EngineLoop::step() {
  HONE_REQUIRE(!std::exchange(in_step_, true), "engine", "A step cannot be part of another one.");
  const auto leave = [](bool* in_step) { *in_step = false; };
  const std::unique_ptr<bool, decltype(leave)> guard(&in_step_, leave);
  try {
    take_messages();
    bool is_busy = flush();
    is_busy |= run_plan();
    is_busy |= end_requests();
    return_pages(!is_busy);
    report();
    if (on_step_end_) on_step_end_();
    return is_busy;
  } catch (...) {
    fail_all();
    return true;
  }
}

// Returns the pages of free blocks that exceed a reserve for the next requests. While others need
// the memory there is no reserve, and half of what the prefix cache holds goes at each look.
void EngineLoop::return_pages(bool is_idle) {
  const BlockPool& pool = scheduler_.pool();
  Index reserve = is_idle ? kIdlePages : 2 * kIdlePages;
  if (const auto now = clock_.now_ns(); now >= next_memory_check_ns_) {
    next_memory_check_ns_ = now + kMemoryCheckNs;
    if (available_bytes_() - mapped_bytes_ < std::min(pool.budget_bytes() / 8, kScarceBytes)) {
      scheduler_.shrink_cache(pool.cached_bytes() / 2);
      reserve = 0;
    }
  }
  const Index resident = arena_.resident_bytes();
  if (resident - pool.used_bytes() <= reserve && resident <= pool.budget_bytes()) return;
  HONE_TRACE_ZONE("return pages", {"resident", resident}, {"used", pool.used_bytes()});
  arena_.reclaim(pool, std::min({reserve, kIdlePages, pool.budget_bytes() - pool.used_bytes()}));
}

// Drafts for the sequences that decode in the next step.
void EngineLoop::propose_drafts() {
  std::vector<Speculator::Candidate> candidates;
  for (const Scheduler::Decoding& one : scheduler_.decoding()) {
    Live& live = live_.at(one.id);
    candidates.push_back({.id = one.id, .sequence = live.sequence.get(), .most = one.most_drafts});
  }
  for (const DraftJob& job : speculator_->propose(candidates)) {
    if (job.failure) {
      Live& live = live_.at(job.id);
      live.failure = job.failure;
      end(live, job.id, FinishReason::Failed);
      scheduler_.cancel(job.id);
    } else {
      scheduler_.set_drafts(job.id, job.drafts);
    }
  }
}

bool EngineLoop::run_plan() {
  try {
    if (speculator_) propose_drafts();
    const StepPlan plan = scheduler_.plan(clock_.now_ns());
    if (plan.empty()) return false;
    const StepResult result = run(plan);
    take_cancelled();
    scheduler_.apply(result);
  } catch (...) {
    fail_all();
  }
  return true;
}

// Ends all requests with the exception in flight: no request in particular is to blame, and none
// may be lost.
void EngineLoop::fail_all() {
  for (auto& [id, live] : live_) {
    if (!live.has_ended && !live.failure) live.failure = std::current_exception();
  }
  scheduler_.fail_all();
}

void EngineLoop::take_messages() {
  for (QueuedRequest& queued : queue_.take()) {
    const RequestId id = queued.id;
    const std::shared_ptr<EventSink> sink = queued.sink;
    try {
      Live& live = live_[id];
      live.sink = sink;
      try {
        admit(std::move(queued));
      } catch (...) {
        live.failure = std::current_exception();
        end(live, id, FinishReason::Failed);
      }
    } catch (...) {
      give_up(id, sink);
    }
  }
  take_cancelled();
}

void EngineLoop::admit(QueuedRequest queued) {
  const RequestId id = queued.id;
  const Request& request = queued.request;
  Submission submission{.id = id,
                        .tokens = request.tokens,
                        .max_tokens = request.max_tokens,
                        .first_output = std::ssize(request.tokens) - 1,
                        .priority = request.priority,
                        .salt = request.salt,
                        .room = kUnbounded,
                        .fork_of = queued.fork_of};
  auto vocabulary = vocabulary_of(queued);
  Live& live = live_[id];
  live.sequence = std::make_unique<Sequence>(std::move(queued), tokenizer_, stop_ids_,
                                             scheduler_.max_length(), std::move(vocabulary));
  submission.deadline = live.sequence->deadline();
  if (const auto refusal = scheduler_.submit(std::move(submission), clock_.now_ns())) {
    live.refusal = refusal;
    if (*refusal == Refusal::DeadlinePassed) throw deadline_error();
    fail(ErrorCategory::Resource, "submit",
         concat("The request was refused: ", name_of(*refusal), "."));
  }
}

std::shared_ptr<const grammar::TokenVocabulary> EngineLoop::vocabulary_of(
    const QueuedRequest& request) {
  if (request.grammar == nullptr) return nullptr;
  if (vocabulary_ == nullptr) {
    HONE_TRACE_ZONE("prepare vocabulary", {"tokens", runner_.vocab_size()});
    vocabulary_ = std::make_shared<const grammar::TokenVocabulary>(
        grammar::make_token_vocabulary(*tokenizer_, runner_.vocab_size(), stop_ids_));
  }
  return vocabulary_;
}

void EngineLoop::take_cancelled() {
  for (const RequestId id : queue_.take_cancelled()) scheduler_.cancel(id);
}

// Whether nothing is left to deliver, or the reader has gone: it took nothing for so long.
bool EngineLoop::is_over(const Live& live, TimeNs now) {
  if (!live.has_ended) return false;
  return !live.has_undelivered() || seconds_between(live.taken_ns, now) >= kStallSeconds;
}

// Offers what the sink did not take. Returns whether it took something.
bool EngineLoop::deliver(Live& live, TimeNs now) {
  bool has_taken = false;
  while (!live.outbox.empty() && live.sink->try_push(std::move(live.outbox.front()))) {
    live.outbox.pop_front();
    has_taken = true;
  }
  if (live.outbox.empty() && live.last && live.sink->try_push(std::move(*live.last))) {
    live.last.reset();
    has_taken = true;
  }
  if (has_taken) live.taken_ns = now;
  return has_taken;
}

// The same for all sinks.
bool EngineLoop::flush() {
  const TimeNs now = clock_.now_ns();
  bool has_delivered = false;
  for (auto at = live_.begin(); at != live_.end();) {
    auto& [id, live] = *at;
    if (deliver(live, now)) {
      has_delivered = true;
      scheduler_.restart_stall(id, now);
    }
    if (live.sequence) scheduler_.set_room(id, live.has_undelivered() ? 0 : kUnbounded);
    at = is_over(live, now) ? live_.erase(at) : std::next(at);
  }
  return has_delivered;
}

bool EngineLoop::has_undelivered() const {
  return std::ranges::any_of(live_, [](const auto& one) { return one.second.has_undelivered(); });
}

// Notes the blocks that hold the first `rows` rows of a request and what precedes them.
void EngineLoop::hold(Live& live, const PlannedSequence& planned, Index rows) const {
  const auto end = static_cast<std::size_t>(ceil_div(planned.first_position + rows, kBlockTokens));
  live.kv_blocks = live.kv_bytes = 0;
  for (std::size_t g = 0; g < planned.blocks.size(); ++g) {
    const auto ids = std::span(planned.blocks[g]).first(end);
    const Index held = std::ssize(ids) - std::ranges::count(ids, kNoBlock);
    live.kv_blocks += held;
    live.kv_bytes += held * scheduler_.pool().block_bytes(static_cast<Index>(g));
  }
}

StepResult EngineLoop::run(const StepPlan& plan) {
  const std::int64_t begin = clock_.now_ns();
  StepResult result;
  std::vector<Wanted> wanted;
  for (const PlannedSequence& planned : plan.sequences) {
    Live& live = live_.at(planned.id);
    if (live.sequence) live.sequence->start(begin, planned.cached);
    hold(live, planned, std::ssize(planned.tokens));
    wanted.push_back({.planned = &planned, .live = &live, .result = {.id = planned.id}});
  }
  try {
    if (!compute(plan)) return result;
    take_outputs(wanted);
  } catch (...) {  // the model failed, and with it whoever takes part
    for (Wanted& one : wanted) {
      one.live->failure = std::current_exception();
      one.result.status = StepStatus::Failed;
    }
  }
  for (Wanted& one : wanted) result.sequences.push_back(std::move(one.result));
  result.seconds = seconds_between(begin, clock_.now_ns());
  const StepShape& shape = plan.shape;
  ended_.rows += shape.decode_rows + shape.prefill_tokens;
  ++ended_.steps;
  ended_.step_seconds += result.seconds;
  if (speculator_ && shape.prefill_tokens == 0) {
    speculator_->observe(shape.decode_rows, std::ssize(plan.sequences), result.seconds);
  }
  return result;
}

// Whether somebody waits for the next token: not if the request was cancelled or is too late.
bool EngineLoop::is_wanted(const Live& live) const {
  if (live.read != nullptr) return true;
  const auto deadline = live.sequence->deadline();
  if (deadline && *deadline <= clock_.now_ns()) return false;
  return !live.sequence->cancelled().load(std::memory_order_relaxed);
}

// Returns false if nobody who takes part wants it any more.
bool EngineLoop::compute(const StepPlan& plan) {
  Index rows = 0, positions = 0;
  bool has_prompt = false;
  for (const PlannedSequence& planned : plan.sequences) {
    rows += std::ssize(planned.tokens);
    positions += planned.first_position + std::ssize(planned.tokens);
    const Live& live = live_.at(planned.id);
    has_prompt |= !live.sequence || planned.first_position < live.sequence->prompt_size();
  }
  HONE_TRACE_ZONE(has_prompt ? "prefill" : "decode", {"rows", rows},
                  {"sequences", plan.sequences.size()}, {"positions", positions});
  for (const BlockCopy& copy : plan.copies) arena_.copy(copy);
  Index layer = 0;
  const auto go_on = [&] {
    if (on_progress_) on_progress_(ended_.rows + rows * layer++ / runner_.layers());
    return std::ranges::any_of(plan.sequences, [&](const PlannedSequence& planned) {
      return is_wanted(live_.at(planned.id));
    });
  };
  return runner_.forward(batch_of(plan), go_on);
}

StepBatch EngineLoop::batch_of(const StepPlan& plan) {
  StepBatch batch;
  tables_.clear();
  for (const PlannedSequence& planned : plan.sequences) {
    std::vector<kernels::BlockPointers> tables;
    for (std::size_t g = 0; g < planned.blocks.size(); ++g) {
      std::vector<std::byte*>& table = tables_.emplace_back();
      for (const BlockId id : planned.blocks[g]) {
        table.push_back(id == kNoBlock ? nullptr : arena_.block(static_cast<Index>(g), id));
      }
      tables.emplace_back(table);
    }
    batch.tokens.insert(batch.tokens.end(), planned.tokens.begin(), planned.tokens.end());
    batch.sequences.push_back({.rows = std::ssize(planned.tokens),
                               .first_position = planned.first_position,
                               .tables = std::move(tables),
                               .logits = planned.outputs()});
  }
  return batch;
}

// Ends what the scheduler has ended. Returns whether there was anything.
bool EngineLoop::end_requests() {
  const std::vector<Ended> all = scheduler_.take_ended();
  for (const Ended& ended : all) {
    const auto found = live_.find(ended.id);
    if (found == live_.end()) continue;
    try {
      finish(found, ended);
    } catch (...) {
      give_up(ended.id, found->second.sink);
    }
  }
  return !all.empty();
}

void EngineLoop::finish(std::map<RequestId, Live>::iterator found, const Ended& ended) {
  Live& live = found->second;
  if (live.read != nullptr) {
    live.read->failure = live.failure;
    live.read->is_done = true;
    live_.erase(found);
    return;
  }
  if (!live.has_ended) end(live, ended);
  live.sequence.reset();
  // A reader that took nothing for so long has gone.
  if (ended.cause == EndCause::Stalled) {
    live.outbox.clear();
    live.last.reset();
  }
}

// Ends a request after building its last event has failed, with an event that needs no allocation.
void EngineLoop::give_up(RequestId id, const std::shared_ptr<EventSink>& sink) {
  const auto found = live_.find(id);
  if (found != live_.end() && found->second.has_ended) return;
  queue_.forget(id);
  if (speculator_) speculator_->forget(id);
  ++ended_.failed;
  Event event{.request = id, .finished = FinishReason::Failed};
  if (found == live_.end()) {
    sink->try_push(std::move(event));
    return;
  }
  Live& live = found->second;
  live.has_ended = true;
  live.sequence.reset();
  live.last = std::move(event);  // flush() offers it
}

void EngineLoop::end(Live& live, const Ended& ended) {
  FinishReason reason = FinishReason::Cancelled;
  if (ended.cause == EndCause::Failed) reason = FinishReason::Failed;
  if (ended.cause == EndCause::DeadlinePassed && !live.sequence->has_token()) {
    reason = FinishReason::Failed;
    live.refusal = Refusal::DeadlinePassed;
    live.failure = std::make_exception_ptr(deadline_error());
  }
  end(live, ended.id, reason, stop_cause(ended.cause));
}

// Sends the last event of a request whose text has not ended by itself.
void EngineLoop::end(Live& live, RequestId id, FinishReason reason,
                     std::optional<StopCause> cause) {
  if (reason == FinishReason::Failed) cause.reset();
  Event event{.request = id, .finished = reason, .cause = cause};
  if (live.sequence) event = live.sequence->finish(reason, cause, clock_.now_ns());
  if (reason == FinishReason::Failed) {
    describe(live.failure, event);
    event.refusal = live.refusal;
  }
  push(live, id, std::move(event));
}

void EngineLoop::push(Live& live, RequestId id, Event event) {
  if (event.finished) {
    event.kv_blocks = live.kv_blocks;
    event.kv_bytes = live.kv_bytes;
    live.taken_ns = clock_.now_ns();
    if (speculator_) event.spec = std::make_shared<const SpecStats>(speculator_->forget(id));
    queue_.forget(id);
    live.has_ended = true;
    const bool is_cancelled = *event.finished == FinishReason::Cancelled;
    const bool has_failed = *event.finished == FinishReason::Failed;
    ended_.cancelled += is_cancelled;
    ended_.failed += has_failed;
    ended_.succeeded += !is_cancelled && !has_failed;
    ended_.prompt_tokens += event.timings.prompt_tokens;
    ended_.generated_tokens += event.timings.generated_tokens;
    report();  // before anybody can act on the event
  }
  if (!live.has_undelivered() && live.sink->try_push(std::move(event))) return;
  if (event.finished) {
    live.last = std::move(event);
  } else {
    live.outbox.push_back(std::move(event));
  }
}

void EngineLoop::report() {
  EngineStats stats = ended_;
  const SchedulerCounters counters = scheduler_.counters();
  stats.preemptions = counters.preemptions;
  stats.cached_tokens = counters.cached_tokens;
  stats.started_tokens = counters.started_tokens;
  stats.evictions = counters.evictions;
  stats.parked = counters.parked;
  stats.kv_budget_bytes = scheduler_.pool().budget_bytes();
  stats.kv_used_bytes = scheduler_.pool().used_bytes();
  stats.kv_cached_bytes = scheduler_.pool().cached_bytes();
  stats.kv_resident_bytes = arena_.resident_bytes();
  if (speculator_) {
    const SpecStats& totals = speculator_->totals();
    stats.spec_rounds = totals.rounds;
    stats.drafted = totals.drafted;
    stats.examined = totals.examined;
    stats.accepted = totals.accepted;
    stats.draft_rows = speculator_->draft_rows();
  }
  Index undelivered = 0;
  for (const auto& [id, live] : live_) {
    stats.running += live.sequence && live.sequence->has_started() && !live.has_ended;
    undelivered += live.has_undelivered();
  }
  queue_.report(stats, undelivered);
}

HiddenStates EngineLoop::read(std::span<const TokenId> tokens, std::uint64_t salt) {
  HONE_TRACE_ZONE("read", {"tokens", tokens.size()});
  ReadJob job{.states = {.rows = std::ssize(tokens), .width = runner_.hidden_size(), .values = {}}};
  job.states.values.resize(static_cast<std::size_t>(job.states.rows * job.states.width));
  const RequestId id = queue_.new_id();
  live_[id].read = &job;
  try {
    const auto refusal = scheduler_.submit({.id = id,
                                            .kind = RequestKind::Read,
                                            .tokens = {tokens.begin(), tokens.end()},
                                            .salt = salt},
                                           clock_.now_ns());
    if (refusal) fail(ErrorCategory::Resource, "read", concat("refused: ", name_of(*refusal)));
    while (!job.is_done) step();
  } catch (...) {
    scheduler_.cancel(id);
    live_.erase(id);
    throw;
  }
  if (job.failure) std::rethrow_exception(job.failure);
  return std::move(job.states);
}

}  // namespace hone::infer
