// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/engine_loop.h"

#include <algorithm>
#include <random>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/cpu_info.h"
#include "hone/core/trace.h"
#include "hone/kernels/norm/log_sum_exp.h"

namespace hone::infer {
namespace {

constexpr Index kLogitRows = 32;  // at a time: 16 MiB for a vocabulary of 128k
constexpr Index kUnbounded = Index{1} << 30;

// Nobody can guess which texts collide, and so who else asked for a text.
PrefixSecret random_secret() {
  std::random_device device;
  const auto word = [&] { return std::uint64_t{device()} << 32 | device(); };
  return {word(), word()};
}

LayerGroup group_of(const kernels::KvLayout& layout) {
  return {.layers = layout.layers,
          .kv_heads = layout.kv_heads,
          .key_dim = layout.head_dim,
          .value_dim = layout.head_dim,
          .dtype = layout.dtype};
}

SchedulerOptions scheduler_options(const LoopOptions& options, const LayerGroup& group) {
  const Index block = kv_block_bytes(group);
  const Index text = (ceil_div(options.context, kBlockTokens) + 1) * block;
  Index kv_bytes = options.kv_bytes;
  if (kv_bytes == 0) {
    kv_bytes = std::max(text, std::min(options.max_sequences * text, available_memory_bytes() / 2));
  }
  return {.groups = {group},
          .kv_bytes = kv_bytes,
          .prefix_secret = random_secret(),
          .context = options.context,
          .max_running = options.max_sequences,
          .max_queue = kUnbounded,  // RequestQueue is bounded
          .prefill_chunk = options.prefill_chunk,
          .max_rows = loop_rows(options)};
}

}  // namespace

Index loop_rows(const LoopOptions& options) {
  return options.prefill_chunk + options.max_sequences + kChunkTokens;
}

EngineLoop::EngineLoop(const LoopOptions& options, ModelRunner& runner,
                       const text::Tokenizer* tokenizer, std::vector<TokenId> stop_ids,
                       Executor& executor, const Clock& clock)
    : runner_(runner),
      tokenizer_(tokenizer),
      stop_ids_(std::move(stop_ids)),
      executor_(executor),
      clock_(clock),
      scheduler_(scheduler_options(options, group_of(runner.kv_layout()))),
      arena_(scheduler_.pool()),
      queue_(options.max_queue) {}

bool EngineLoop::step() {
  take_messages();
  bool is_busy = flush();
  const StepPlan plan = scheduler_.plan(clock_.now_ns());
  if (!plan.empty()) {
    const StepResult result = run(plan);
    take_cancelled();
    scheduler_.apply(result);
    is_busy = true;
  }
  is_busy |= end_requests();
  report();
  if (!is_busy) arena_.reclaim(scheduler_.pool());
  return is_busy;
}

void EngineLoop::take_messages() {
  for (QueuedRequest& queued : queue_.take()) {
    const RequestId id = queued.id;
    const Request& request = queued.request;
    Submission submission{.id = id,
                          .tokens = request.tokens,
                          .max_tokens = request.max_tokens,
                          .first_output = std::ssize(request.tokens) - 1,
                          .room = kUnbounded};
    Live live;
    auto vocabulary = vocabulary_of(queued);
    live.sequence = std::make_unique<Sequence>(std::move(queued), tokenizer_, stop_ids_,
                                               scheduler_.max_length(), std::move(vocabulary));
    Live& added = live_.emplace(id, std::move(live)).first->second;
    const auto refusal = scheduler_.submit(std::move(submission), clock_.now_ns());
    if (!refusal) continue;
    added.failure = std::make_exception_ptr(
        Error(ErrorCategory::Resource,
              concat("[submit] The request was refused: ", name_of(*refusal), ".")));
    push(added, id, failed(added));
  }
  take_cancelled();
}

std::shared_ptr<const grammar::TokenVocabulary> EngineLoop::vocabulary_of(
    const QueuedRequest& request) {
  if (request.schema == nullptr) return nullptr;
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

// Offers what sinks did not take. Returns whether one took something.
bool EngineLoop::flush() {
  bool has_delivered = false;
  for (auto at = live_.begin(); at != live_.end();) {
    auto& [id, live] = *at;
    while (!live.outbox.empty() &&
           live.sequence->sink()->try_push(std::move(live.outbox.front()))) {
      live.outbox.pop_front();
      has_delivered = true;
    }
    if (live.sequence) scheduler_.set_room(id, live.outbox.empty() ? kUnbounded : 0);
    at = live.has_ended && live.outbox.empty() ? live_.erase(at) : std::next(at);
  }
  return has_delivered;
}

bool EngineLoop::has_undelivered() const {
  return std::ranges::any_of(live_, [](const auto& one) { return !one.second.outbox.empty(); });
}

StepResult EngineLoop::run(const StepPlan& plan) {
  const std::int64_t begin = clock_.now_ns();
  StepResult result;
  std::vector<Wanted> wanted;
  for (const PlannedSequence& planned : plan.sequences) {
    Live& live = live_.at(planned.id);
    if (live.sequence) live.sequence->start(begin);
    live.kv_blocks =
        std::ssize(planned.blocks[0]) - std::ranges::count(planned.blocks[0], kNoBlock);
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
  return result;
}

// Returns false if everybody who takes part was cancelled meanwhile.
bool EngineLoop::compute(const StepPlan& plan) {
  for (const BlockCopy& copy : plan.copies) arena_.copy(copy);
  const auto go_on = [&] {
    return std::ranges::any_of(plan.sequences, [&](const PlannedSequence& planned) {
      const Live& live = live_.at(planned.id);
      return live.score != nullptr || !live.sequence->cancelled().load(std::memory_order_relaxed);
    });
  };
  return runner_.forward(batch_of(plan), go_on);
}

StepBatch EngineLoop::batch_of(const StepPlan& plan) {
  StepBatch batch;
  tables_.clear();
  for (const PlannedSequence& planned : plan.sequences) {
    std::vector<std::byte*>& table = tables_.emplace_back();
    for (const BlockId id : planned.blocks[0]) {
      table.push_back(id == kNoBlock ? nullptr : arena_.block(0, id));
    }
    batch.tokens.insert(batch.tokens.end(), planned.tokens.begin(), planned.tokens.end());
    const Index rows = std::ssize(planned.tokens);
    batch.sequences.push_back({.rows = rows,
                               .first_position = planned.first_position,
                               .tables = {table},
                               .logits = rows - planned.first_output});
  }
  return batch;
}

// Gives each wanted row its logits, some rows at a time.
void EngineLoop::take_outputs(std::span<Wanted> wanted) {
  Index total = 0;
  for (const Wanted& one : wanted) {
    total += std::ssize(one.planned->tokens) - one.planned->first_output;
  }
  auto at = wanted.begin();
  Index row = 0;  // of the wanted ones of *at
  for (Index first = 0; first < total; first += kLogitRows) {
    const Index count = std::min(kLogitRows, total - first);
    std::span<float> logits = runner_.logits(first, count);
    const std::size_t vocab = logits.size() / static_cast<std::size_t>(count);
    while (!logits.empty()) {
      const Index left = std::ssize(at->planned->tokens) - at->planned->first_output - row;
      const std::size_t take = std::min(logits.size(), static_cast<std::size_t>(left) * vocab);
      if (take > 0) take_rows(*at, row, logits.first(take));
      logits = logits.subspan(take);
      row += static_cast<Index>(take / vocab);
      if (row == std::ssize(at->planned->tokens) - at->planned->first_output) ++at, row = 0;
    }
  }
}

// Rows first… of those that the sequence wants.
void EngineLoop::take_rows(Wanted& wanted, Index first, std::span<float> logits) {
  Live& live = *wanted.live;
  if (wanted.result.status != StepStatus::Done) return;
  try {
    if (live.score != nullptr) {
      const Index row = wanted.planned->first_position + wanted.planned->first_output + first;
      score_rows(*live.score, row, logits);
      return;
    }
    Event event = live.sequence->accept(logits, clock_);
    wanted.result.tokens = {*event.token};
    wanted.result.finished = event.finished.has_value();
    push(live, wanted.result.id, std::move(event));
  } catch (...) {  // ends this request alone
    live.failure = std::current_exception();
    wanted.result.status = StepStatus::Failed;
  }
}

void EngineLoop::score_rows(ScoreJob& job, Index first, std::span<const float> logits) {
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

// Ends what the scheduler has ended. Returns whether there was anything.
bool EngineLoop::end_requests() {
  const std::vector<Ended> all = scheduler_.take_ended();
  for (const Ended& ended : all) {
    const auto found = live_.find(ended.id);
    if (found == live_.end()) continue;
    Live& live = found->second;
    if (live.score != nullptr) {
      live.score->failure = live.failure;
      live.score->is_done = true;
      live_.erase(found);
    } else if (live.has_ended) {
      if (live.outbox.empty()) live_.erase(found);
    } else if (ended.cause == EndCause::Failed) {
      push(live, ended.id, failed(live));
    } else {
      push(live, ended.id, live.sequence->finish(FinishReason::Cancelled, clock_.now_ns()));
    }
  }
  return !all.empty();
}

Event EngineLoop::failed(Live& live) {
  Event event = live.sequence->finish(FinishReason::Failed, clock_.now_ns());
  try {
    std::rethrow_exception(live.failure);
  } catch (const Error& error) {
    event.error = error.what();
    event.error_category = error.category();
  } catch (const std::bad_alloc&) {
    event.error = "[engine] There is not enough memory.";
    event.error_category = ErrorCategory::Resource;
  } catch (const std::exception& error) {
    event.error = error.what();
  }
  return event;
}

void EngineLoop::push(Live& live, RequestId id, Event event) {
  if (event.finished) {
    event.kv_blocks = live.kv_blocks;
    event.kv_bytes = live.kv_blocks * runner_.kv_layout().block_bytes();
    live.has_ended = true;
    queue_.forget(id);
    ended_.cancelled += *event.finished == FinishReason::Cancelled;
    ended_.failed += *event.finished == FinishReason::Failed;
    ended_.succeeded +=
        *event.finished == FinishReason::Stop || *event.finished == FinishReason::Length;
  }
  const bool is_taken = live.outbox.empty() && live.sequence->sink()->try_push(std::move(event));
  if (!is_taken) live.outbox.push_back(std::move(event));
}

void EngineLoop::report() {
  EngineStats stats = ended_;
  const SchedulerCounters counters = scheduler_.counters();
  stats.preemptions = counters.preemptions;
  stats.cached_tokens = counters.cached_tokens;
  for (const auto& [id, live] : live_) {
    stats.running += live.sequence && live.sequence->has_started() && !live.has_ended;
  }
  queue_.report(stats);
}

ScoreResult EngineLoop::score(std::span<const TokenId> tokens, const ScoreOptions& options) {
  HONE_TRACE_ZONE("score", {"tokens", tokens.size()});
  ScoreJob job{.targets = tokens.subspan(1), .options = &options};
  job.result.logprobs.resize(job.targets.size());
  const RequestId id = queue_.new_id();
  const auto rows = tokens.first(tokens.size() - 1);
  const auto refusal = scheduler_.submit(
      {.id = id, .kind = RequestKind::Score, .tokens = {rows.begin(), rows.end()}},
      clock_.now_ns());
  if (refusal) fail(ErrorCategory::Resource, "score", concat("refused: ", name_of(*refusal)));
  live_[id].score = &job;
  while (!job.is_done) step();
  if (job.failure) std::rethrow_exception(job.failure);
  return std::move(job.result);
}

}  // namespace hone::infer
