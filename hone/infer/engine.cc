// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/engine.h"

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/cpu_info.h"
#include "hone/core/trace.h"
#include "hone/infer/engine_loop.h"
#include "hone/infer/spec/draft_model.h"
#include "hone/model_io/model_file.h"

namespace hone::infer {
namespace {

const EngineOptions& checked(const EngineOptions& options) {
  HONE_REQUIRE(options.executor != nullptr, "engine", "The options have no executor.");
  HONE_CHECK(options.context >= 0, "context", "0 or more tokens", options.context);
  HONE_CHECK(options.prefill_chunk >= 1 && options.prefill_chunk <= 8192, "prefill chunk",
             "1 to 8192 tokens", options.prefill_chunk);
  HONE_CHECK(options.max_queue >= 1, "max queue", "at least 1 request", options.max_queue);
  HONE_CHECK(options.max_sequences >= 1 && options.max_sequences <= 1024, "max sequences",
             "1 to 1024 requests", options.max_sequences);
  HONE_CHECK(options.kv_bytes >= 0, "kv bytes", "0 or more bytes", options.kv_bytes);
  const DraftOptions& draft = options.draft;
  HONE_CHECK(draft.kv_bytes >= 0, "draft kv bytes", "0 or more bytes", draft.kv_bytes);
  const int sources =
      (draft.ngram ? 1 : 0) + (draft.model.empty() ? 0 : 1) + (draft.function ? 1 : 0);
  HONE_CHECK(sources <= 1, "draft", "one source of drafts", sources);
  return options;
}

Index context_of(const EngineOptions& options, const model_io::ModelFile& file) {
  const Index trained = file.architecture().context;
  if (options.context == 0) return trained;
  HONE_CHECK(options.context <= trained, "context",
             concat("at most the model's ", trained, " tokens"), options.context);
  return options.context;
}

LoopOptions loop_options(const EngineOptions& options, const model_io::ModelFile& file) {
  const Index chunk = options.prefill_chunk;
  return {.context = context_of(options, file),
          .kv_bytes = options.kv_bytes,
          .max_sequences = options.max_sequences,
          .max_queue = options.max_queue,
          .prefill_chunk = chunk < kChunkTokens ? chunk : chunk / kChunkTokens * kChunkTokens};
}

RunnerOptions runner_options(const EngineOptions& options, Index rows) {
  return {
      .act = options.activations == Activations::Int8 ? kernels::Act::Int8 : kernels::Act::Float32,
      .kv = cell_dtype(options.kv),
      .max_rows = rows,
      .weights = options.weights};
}

void check_ids(std::span<const TokenId> tokens, Index vocab, std::string_view where) {
  for (const TokenId id : tokens) {
    HONE_CHECK(id >= 0 && id < vocab, where, concat("a token id below ", vocab), id);
  }
}

}  // namespace

struct Engine::State {
  State(std::unique_ptr<model_io::ModelFile> file_in, const EngineOptions& options)
      : clock(options.clock != nullptr ? *options.clock : steady_clock()),
        file(std::move(file_in)),
        tokenizer(file->tokenizer()),
        loop_settings(loop_options(options, *file)),
        runner(*file, runner_options(options, loop_rows(loop_settings)), *options.executor),
        draft_model(open_draft_model(options)),
        loop(loop_settings, runner, tokenizer.get(), file->architecture().stop_ids,
             *options.executor, clock, make_drafts(options)) {
    info.architecture = file->architecture();
    info.format = name_of(file->format());
    info.context = loop.max_length();
    info.wanted_context = loop_settings.context;
    info.file_bytes = file->file_bytes();
    info.files = file->files();
    if (draft_model != nullptr) info.draft_files = draft_model->files();
    info.weight_bytes = runner.weight_bytes();
    info.weights_are_mapped = runner.weights().packed != nullptr;
    info.kept_weights = runner.weights().kept;
    info.kv_bytes_per_token = kv_token_bytes(runner.kv_groups());
    for (const LayerGroup& group : runner.kv_groups()) {
      if (group.window == 0) continue;
      info.windowed.push_back({group.window, kv_block_bytes(group) / kBlockTokens});
    }
    info.isa = name_of(best_isa());
    info.kernel = runner.kernel_name();
    info.threads = options.executor->workers();
    info.generation_defaults = file->generation_defaults();
  }

  std::unique_ptr<DraftModel> open_draft_model(const EngineOptions& options) const;
  std::unique_ptr<DraftSource> make_drafts(const EngineOptions& options);
  void check(const Request& request) const;
  void check_schema(const Request& request) const;

  const Clock& clock;
  std::unique_ptr<model_io::ModelFile> file;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  LoopOptions loop_settings;
  ModelRunner runner;
  std::unique_ptr<DraftModel> draft_model;  // null without one
  EngineLoop loop;
  ModelInfo info;
};

std::unique_ptr<DraftModel> Engine::State::open_draft_model(const EngineOptions& options) const {
  if (options.draft.model.empty()) return nullptr;
  // Each sequence that decodes has two new tokens in most rounds.
  const Index rows = std::max(loop_rows(loop_settings), 2 * options.max_sequences);
  return std::make_unique<DraftModel>(options.draft.model, *file, runner_options(options, rows),
                                      *options.executor);
}

std::unique_ptr<DraftSource> Engine::State::make_drafts(const EngineOptions& options) {
  const Index vocab = runner.vocab_size();
  if (options.draft.ngram) return make_ngram_drafts();
  if (options.draft.function) return make_function_drafts(options.draft.function, vocab);
  if (draft_model == nullptr) return nullptr;
  return draft_model->make_source(
      {.context = loop_settings.context, .kv_bytes = options.draft.kv_bytes, .vocab = vocab},
      options.max_sequences, clock);
}

void Engine::State::check(const Request& request) const {
  const Index vocab = file->architecture().vocab_size;
  const auto length = static_cast<Index>(request.tokens.size());
  HONE_CHECK(length >= 1, "request", "a prompt of at least one token", length);
  const bool is_cache_short = info.context < info.wanted_context;
  HONE_CHECK(length < info.context, "request",
             concat("a prompt below the ", info.context, " tokens of the ",
                    is_cache_short ? "KV cache" : "context"),
             length);
  check_ids(request.tokens, vocab, "request");
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
  const Index depth = request.spec.depth.value_or(0);
  HONE_CHECK(depth >= 0 && depth <= kMaxDraftDepth, "drafts",
             concat("0 to ", kMaxDraftDepth, " in a round"), depth);
  const bool is_timeout = request.timeout_s >= 0 && request.timeout_s <= 1e9;  // false for NaN
  HONE_CHECK(is_timeout, "timeout", "0 to 1e9 seconds", request.timeout_s);
  if (!request.json_schema.empty()) check_schema(request);
  validate(request.sampling, vocab);
}

void Engine::State::check_schema(const Request& request) const {
  HONE_REQUIRE(tokenizer != nullptr, "JSON schema",
               "A schema needs a tokenizer, and this model has none.");
  HONE_REQUIRE(!request.ignore_eos && request.stop.empty() && request.min_tokens == 0,
               "JSON schema",
               "The schema says where the text ends, so that stop strings, ignoring stop tokens and"
               " a minimum of tokens are excluded.");
}

std::unique_ptr<Engine> Engine::open_or_throw(const std::filesystem::path& model,
                                              const EngineOptions& options) {
  HONE_TRACE_ZONE("open model", {"file", model.string()});
  checked(options);
  auto file = model_io::open_model_or_throw(
      model, {.tokenizer = options.tokenizer, .need_tokenizer = options.need_tokenizer});
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
  return state_->loop.queue().push({.request = std::move(request),
                                    .schema = std::move(schema),
                                    .sink = std::move(sink),
                                    .submitted_ns = state_->clock.now_ns()});
}

void Engine::cancel(RequestId id) noexcept { state_->loop.queue().cancel(id); }
bool Engine::step() { return state_->loop.step(); }

void Engine::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    if (!step()) state_->loop.queue().wait(stop, state_->loop.has_undelivered());
  }
}

EngineStats Engine::stats() const { return state_->loop.queue().stats(); }

ScoreResult Engine::score(std::span<const TokenId> tokens, const ScoreOptions& options) {
  const auto length = static_cast<Index>(tokens.size());
  HONE_CHECK(length >= 2 && length <= state_->info.context, "score",
             concat("2 to ", state_->info.context, " tokens"), length);
  check_ids(tokens, state_->runner.vocab_size(), "score");
  return state_->loop.score(tokens, options);
}

}  // namespace hone::infer
