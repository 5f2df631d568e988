// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/engine.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/cpu_info.h"
#include "hone/core/trace.h"
#include "hone/infer/grammar/token_vocabulary.h"
#include "hone/infer/kv/kv_cache.h"
#include "hone/infer/model/model_runner.h"
#include "hone/infer/sched/sequence.h"
#include "hone/kernels/norm/log_sum_exp.h"
#include "hone/model_io/factored_config.h"
#include "hone/model_io/model_file.h"

namespace hone::infer {
namespace {

constexpr Index kScoreRows = 32;  // rows of logits at a time: 16 MiB for a vocabulary of 128k

const EngineOptions& checked(const EngineOptions& options) {
  HONE_REQUIRE(options.executor != nullptr, "engine", "The options have no executor.");
  HONE_CHECK(options.context >= 0, "context", "0 or more tokens", options.context);
  HONE_CHECK(options.prefill_chunk >= 1 && options.prefill_chunk <= 8192, "prefill chunk",
             "1 to 8192 tokens", options.prefill_chunk);
  HONE_CHECK(options.max_queue >= 1, "max queue", "at least 1 request", options.max_queue);
  return options;
}

RunnerOptions runner_options(const EngineOptions& options) {
  return {
      .act = options.activations == Activations::Int8 ? kernels::Act::Int8 : kernels::Act::Float32,
      .max_rows = options.prefill_chunk};
}

Dtype dtype_of(KvDtype kv) { return kv == KvDtype::Float16 ? Dtype::Float16 : Dtype::Float32; }

}  // namespace

struct Engine::State {
  State(std::unique_ptr<model_io::ModelFile> file_in, const EngineOptions& options_in)
      : options(options_in),
        clock(options_in.clock != nullptr ? *options_in.clock : steady_clock()),
        file(std::move(file_in)),
        tokenizer(file->tokenizer()),
        runner(*file, runner_options(options), *options.executor),
        cache(runner.kv_layout(dtype_of(options.kv)), context()),
        queue(options.max_queue) {
    describe();
  }

  Index context() const {
    const Index trained = file->architecture().context;
    if (options.context == 0) return trained;
    HONE_CHECK(options.context <= trained, "context",
               concat("at most the model's ", trained, " tokens"), options.context);
    return options.context;
  }

  void describe() {
    info.architecture = file->architecture();
    info.format = name_of(file->format());
    info.context = cache.capacity();
    info.file_bytes = file->file_bytes();
    info.weight_bytes = runner.weight_bytes();
    info.kv_bytes_per_token = cache.layout().block_bytes() / kernels::kKvBlockTokens;
    info.isa = name_of(best_isa());
    info.kernel = runner.kernel_name();
    info.threads = options.executor->workers();
    info.generation_defaults = file->generation_defaults();
  }

  bool step();
  bool flush();
  void reap_cancelled();
  bool start_next();
  void advance();
  void end(FinishReason reason);
  void deliver(Event event);
  void send(const std::shared_ptr<EventSink>& sink, Event event);
  void check(const Request& request) const;
  void check_schema(const Request& request) const;
  ScoreResult score(std::span<const TokenId> tokens, const ScoreOptions& score_options);
  void score_rows(std::span<const TokenId> tokens, Index first, std::span<const float> logits,
                  std::span<double> logprobs);

  EngineOptions options;
  const Clock& clock;
  std::unique_ptr<model_io::ModelFile> file;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  ModelRunner runner;
  KvCache cache;
  ModelInfo info;
  RequestQueue queue;
  std::unique_ptr<Sequence> running;
  // For masks; made when the first request with a schema starts.
  std::shared_ptr<const grammar::TokenVocabulary> vocabulary;
  // Events that a full sink did not take, in order. The engine does nothing else until they are
  // delivered.
  struct PendingEvent {
    std::shared_ptr<EventSink> sink;
    Event event;
  };
  std::deque<PendingEvent> outbox;
  mutable std::mutex stats_mutex;  // guards stats
  EngineStats stats;
};

bool Engine::State::flush() {
  while (!outbox.empty()) {
    if (!outbox.front().sink->try_push(std::move(outbox.front().event))) return false;
    outbox.pop_front();
  }
  return true;
}

void Engine::State::send(const std::shared_ptr<EventSink>& sink, Event event) {
  if (event.finished) {
    queue.forget(event.request);
    const std::lock_guard lock(stats_mutex);
    stats.running = 0;
    stats.cancelled += *event.finished == FinishReason::Cancelled;
    stats.failed += *event.finished == FinishReason::Failed;
    stats.succeeded +=
        *event.finished == FinishReason::Stop || *event.finished == FinishReason::Length;
  }
  if (!sink->try_push(std::move(event))) outbox.push_back({sink, std::move(event)});
}

void Engine::State::reap_cancelled() {
  for (const QueuedRequest& request : queue.take_cancelled()) {
    Event event{.request = request.id, .finished = FinishReason::Cancelled};
    event.timings.prompt_tokens = static_cast<Index>(request.request.tokens.size());
    event.timings.queue_s = seconds_between(request.submitted_ns, clock.now_ns());
    send(request.sink, std::move(event));
  }
}

bool Engine::State::start_next() {
  auto next = queue.pop();
  if (!next) return false;
  cache.truncate(0);
  const std::vector<TokenId>& stop_ids = file->architecture().stop_ids;
  if (next->schema != nullptr && vocabulary == nullptr) {
    HONE_TRACE_ZONE("prepare vocabulary", {"tokens", file->architecture().vocab_size});
    vocabulary = std::make_shared<const grammar::TokenVocabulary>(
        grammar::make_token_vocabulary(*tokenizer, file->architecture().vocab_size, stop_ids));
  }
  running = std::make_unique<Sequence>(std::move(*next), tokenizer.get(), stop_ids,
                                       cache.capacity(), clock.now_ns(), vocabulary);
  const std::lock_guard lock(stats_mutex);
  stats.running = 1;
  return true;
}

// Runs one prefill chunk or one token. The chunk that completes the prompt also yields the first
// token.
void Engine::State::advance() {
  if (running->cancelled().load(std::memory_order_relaxed)) return end(FinishReason::Cancelled);
  const auto tokens = running->pending(options.prefill_chunk);
  const auto rows = static_cast<Index>(tokens.size());
  HONE_TRACE_ZONE(running->has_pending_prompt() ? "prefill" : "decode", {"tokens", rows},
                  {"position", cache.length()});
  if (!runner.forward(tokens, cache, &running->cancelled())) return end(FinishReason::Cancelled);
  running->advance(rows);
  if (running->has_pending_prompt()) return;
  const std::span<float> logits = runner.logits(rows - 1, 1);
  deliver(running->accept(logits, clock));
}

void Engine::State::end(FinishReason reason) { deliver(running->finish(reason, clock.now_ns())); }

void Engine::State::deliver(Event event) {
  const std::shared_ptr<EventSink> sink = running->sink();
  if (event.finished) {
    event.kv_bytes = cache.bytes();
    event.kv_blocks = cache.blocks();
    running.reset();
  }
  send(sink, std::move(event));
}

bool Engine::State::step() {
  if (!flush()) return false;
  reap_cancelled();
  if (running == nullptr && !start_next()) return false;
  try {
    advance();
  } catch (const Error& error) {  // ends the request, not the engine
    Event event = running->finish(FinishReason::Failed, clock.now_ns());
    event.error = error.what();
    event.error_category = error.category();
    deliver(std::move(event));
  }
  return true;
}

void Engine::State::check(const Request& request) const {
  const Index vocab = file->architecture().vocab_size;
  const auto length = static_cast<Index>(request.tokens.size());
  HONE_CHECK(length >= 1, "request", "a prompt of at least one token", length);
  HONE_CHECK(length < cache.capacity(), "request",
             concat("a prompt below the context of ", cache.capacity(), " tokens"), length);
  for (const TokenId id : request.tokens) {
    HONE_CHECK(id >= 0 && id < vocab, "request", concat("a token id below ", vocab), id);
  }
  HONE_CHECK(request.max_tokens >= 1, "max_tokens", "at least 1", request.max_tokens);
  HONE_CHECK(request.min_tokens >= 0 && request.min_tokens <= request.max_tokens, "min_tokens",
             concat("0 to ", request.max_tokens), request.min_tokens);
  HONE_CHECK(request.logprobs >= 0 && request.logprobs <= 20, "logprobs", "0 to 20",
             request.logprobs);
  HONE_CHECK(request.stop.size() <= 16, "stop", "at most 16 strings", request.stop.size());
  for (const std::string& stop : request.stop) {
    HONE_CHECK(!stop.empty() && stop.size() <= 256, "stop", "a string of 1 to 256 bytes",
               stop.size());
  }
  HONE_REQUIRE(request.stop.empty() || tokenizer != nullptr, "stop",
               "Stop strings need a tokenizer, and this model has none.");
  if (!request.json_schema.empty()) check_schema(request);
  validate(request.sampling, vocab);
}

void Engine::State::check_schema(const Request& request) const {
  HONE_REQUIRE(tokenizer != nullptr, "JSON schema",
               "A schema needs a tokenizer, and this model has none.");
  HONE_REQUIRE(!request.ignore_eos && request.stop.empty(), "JSON schema",
               "The schema says where the text ends, so that stop strings and ignoring stop tokens"
               " are excluded.");
}

ScoreResult Engine::State::score(std::span<const TokenId> tokens,
                                 const ScoreOptions& score_options) {
  const auto length = static_cast<Index>(tokens.size());
  HONE_CHECK(length >= 2 && length <= cache.capacity(), "score",
             concat("2 to ", cache.capacity(), " tokens"), length);
  HONE_REQUIRE(running == nullptr, "score", "The engine is running a request.");
  HONE_TRACE_ZONE("score", {"tokens", length});
  cache.truncate(0);
  ScoreResult result;
  result.logprobs.resize(tokens.size() - 1);
  for (Index begin = 0; begin < length; begin += options.prefill_chunk) {
    const Index rows = std::min(options.prefill_chunk, length - begin);
    runner.forward(tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows)),
                   cache);
    const Index predicting = std::min(rows, length - 1 - begin);
    for (Index row = 0; row < predicting; row += kScoreRows) {
      const Index count = std::min(kScoreRows, predicting - row);
      const std::span<const float> logits = runner.logits(row, count);
      score_rows(tokens, begin + row, logits, result.logprobs);
      if (score_options.on_logits) score_options.on_logits(begin + row + 1, count, logits);
    }
  }
  return result;
}

void Engine::State::score_rows(std::span<const TokenId> tokens, Index first,
                               std::span<const float> logits, std::span<double> logprobs) {
  const Index vocab = file->architecture().vocab_size;
  const Index rows = static_cast<Index>(logits.size()) / vocab;
  options.executor->parallel_for(rows, 1, [&](Index begin, Index end, int) {
    for (Index row = begin; row < end; ++row) {
      const float* line = logits.data() + row * vocab;
      const TokenId target = tokens[static_cast<std::size_t>(first + row + 1)];
      logprobs[static_cast<std::size_t>(first + row)] =
          line[target] - kernels::log_sum_exp(line, vocab);
    }
  });
}

std::unique_ptr<Engine> Engine::open_or_throw(const std::filesystem::path& model,
                                              const EngineOptions& options) {
  HONE_TRACE_ZONE("open model", {"file", model.string()});
  checked(options);
  auto file = model_io::open_model_or_throw(
      model, {.tokenizer = options.tokenizer, .need_tokenizer = options.need_tokenizer});
  model_io::refuse_factored(file->architecture(), model.string());
  return std::unique_ptr<Engine>(new Engine(std::make_unique<State>(std::move(file), options)));
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

const ModelInfo& Engine::info() const { return state_->info; }
bool Engine::has_tokenizer() const { return state_->tokenizer != nullptr; }
const text::Tokenizer& Engine::tokenizer() const {
  if (state_->tokenizer == nullptr) {
    fail_unsupported("tokenizer", "This model has no vocabulary.");
  }
  return *state_->tokenizer;
}

RequestId Engine::submit(Request request, std::shared_ptr<EventSink> sink) {
  HONE_REQUIRE(sink != nullptr, "submit", "The request has no sink.");
  state_->check(request);
  std::shared_ptr<const grammar::JsonSchema> schema;
  if (!request.json_schema.empty()) schema = grammar::JsonSchema::compile(request.json_schema);
  const RequestId id = state_->queue.push({.request = std::move(request),
                                           .schema = std::move(schema),
                                           .sink = std::move(sink),
                                           .submitted_ns = state_->clock.now_ns()});
  const std::lock_guard lock(state_->stats_mutex);
  ++state_->stats.submitted;
  return id;
}

void Engine::cancel(RequestId id) noexcept { state_->queue.cancel(id); }
bool Engine::step() { return state_->step(); }

void Engine::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    if (!state_->step()) state_->queue.wait(stop, !state_->outbox.empty());
  }
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(state_->stats_mutex);
  EngineStats stats = state_->stats;
  stats.waiting = state_->queue.waiting();
  return stats;
}

ScoreResult Engine::score(std::span<const TokenId> tokens, const ScoreOptions& options) {
  return state_->score(tokens, options);
}

}  // namespace hone::infer
