// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/engine.h"

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/machine/trace.h"
#include "hone/infer/engine_loop.h"
#include "hone/infer/spec/draft_model.h"
#include "hone/kernels/norm/token_scores.h"
#include "hone/model_io/model_file.h"
#include "hone/text/turn_tokens.h"

namespace hone::infer {
namespace {

RunnerOptions runner_options(const EngineOptions& options, Index rows) {
  return {
      .act = options.activations == Activations::Int8 ? kernels::Act::Int8 : kernels::Act::Float32,
      .kv = cell_dtype(options.kv),
      .max_rows = rows,
      .weights = options.weights};
}

std::shared_ptr<const grammar::JsonSchema> grammar_of(const Request& request) {
  if (request.json_schema.empty()) return request.grammar;
  std::vector<std::string> ignored;  // whoever wants to know calls check_schema()
  return grammar::JsonSchema::compile(request.json_schema,
                                      request.ignores_unsupported_schema ? &ignored : nullptr);
}

// Control tokens add nothing to the text, so a stop string that spells one cannot be found there.
void add_control_stops(Request& request, const text::Tokenizer& tokenizer) {
  for (const std::string& stop : request.stop) {
    if (const auto id = text::control_id(tokenizer, stop)) request.stop_ids.push_back(*id);
  }
}

// The tokens that end a text: those that the files name, and those that end a turn.
std::vector<TokenId> stop_ids(const model_io::Architecture& architecture,
                              const text::Tokenizer* tokenizer) {
  std::vector<TokenId> ids = architecture.stop_ids;
  if (tokenizer != nullptr) {
    for (const TokenId id : text::end_of_turn_ids(*tokenizer)) {
      if (id < architecture.vocab_size) ids.push_back(id);
    }
  }
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// The rows of a step of a draft model: each sequence that decodes has two new tokens in most
// rounds.
Index draft_rows(const LoopOptions& loop) {
  return std::max(loop_rows(loop), 2 * loop.max_sequences);
}

// The options of a loop that runs beside the weights of `runner`.
LoopOptions beside_weights(LoopOptions loop, const ModelRunner& runner, Index draft_bytes) {
  if (runner.weights().packed != nullptr) loop.mapped_bytes = runner.weight_bytes() + draft_bytes;
  return loop;
}

}  // namespace

struct Engine::State {
  explicit State(ModelHeader header_in)
      : header(std::move(header_in)),
        clock(options().clock != nullptr ? *options().clock : steady_clock()),
        loop_settings(loop_options(options(), header.context())),
        runner(file(), runner_options(options(), loop_rows(loop_settings)), *options().executor),
        draft_model(load_draft_model()),
        loop(beside_weights(loop_settings, runner, draft_bytes()), runner, header.tokenizer_.get(),
             stop_ids(file().architecture(), header.tokenizer_.get()), *options().executor, clock,
             make_drafts()) {
    info.architecture = file().architecture();
    info.format = name_of(file().format());
    info.context = loop.max_length();
    info.wanted_context = loop_settings.context;
    info.file_bytes = file().file_bytes();
    info.files = file().files();
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
    info.threads = options().executor->workers();
    info.generation_defaults = file().generation_defaults();
    if (const std::string* chat = file().metadata().chat_template()) info.chat_template = *chat;
  }

  const EngineOptions& options() const { return header.options_; }
  const model_io::ModelFile& file() const { return *header.file_; }
  std::unique_ptr<DraftModel> load_draft_model();
  std::unique_ptr<DraftSource> make_drafts();
  Index draft_bytes() const { return draft_model == nullptr ? 0 : draft_model->weight_bytes(); }

  ModelHeader header;
  const Clock& clock;
  LoopOptions loop_settings;
  ModelRunner runner;
  std::unique_ptr<DraftModel> draft_model;  // null without one
  EngineLoop loop;
  ModelInfo info;
};

std::unique_ptr<DraftModel> Engine::State::load_draft_model() {
  if (header.draft_ == nullptr) return nullptr;
  return std::make_unique<DraftModel>(std::move(header.draft_),
                                      runner_options(options(), draft_rows(loop_settings)),
                                      *options().executor);
}

std::unique_ptr<DraftSource> Engine::State::make_drafts() {
  const DraftOptions& draft = options().draft;
  const Index vocab = runner.vocab_size();
  if (draft.ngram) return make_ngram_drafts();
  if (draft.function) return make_function_drafts(draft.function, vocab);
  if (draft_model == nullptr) return nullptr;
  return draft_model->make_source(
      {.context = loop_settings.context, .kv_bytes = draft.kv_bytes, .vocab = vocab},
      loop_settings.max_sequences, clock);
}

std::unique_ptr<Engine> Engine::open_or_throw(const std::filesystem::path& model,
                                              const EngineOptions& options) {
  return load(ModelHeader::open_or_throw(model, options));
}

std::unique_ptr<Engine> Engine::load(ModelHeader header) {
  HONE_TRACE_ZONE("load model");
  return std::unique_ptr<Engine>(new Engine(std::make_unique<State>(std::move(header))));
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

const ModelInfo& Engine::info() const { return state_->info; }
bool Engine::has_tokenizer() const { return state_->header.has_tokenizer(); }
const text::Tokenizer& Engine::tokenizer() const { return state_->header.tokenizer(); }

RequestId Engine::submit(Request request, std::shared_ptr<EventSink> sink) {
  std::vector<Request> one;
  one.push_back(std::move(request));
  return submit(std::move(one), {std::move(sink)}).front();
}

std::vector<RequestId> Engine::submit(std::vector<Request> requests,
                                      const std::vector<std::shared_ptr<EventSink>>& sinks) {
  HONE_CHECK(!requests.empty() && requests.size() == sinks.size(), "submit",
             "requests, each with a sink", concat(requests.size(), " with ", sinks.size()));
  const ModelInfo& model = info();
  std::vector<QueuedRequest> queued;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    HONE_REQUIRE(sinks[i] != nullptr, "submit", "The request has no sink.");
    HONE_REQUIRE(request.salt == requests[0].salt && request.priority == requests[0].priority,
                 "submit", "The requests are of several tenants or classes of priority.");
    validate(request, {.vocab_size = model.architecture.vocab_size,
                       .context = model.context,
                       .is_cache_short = model.context < model.wanted_context,
                       .has_tokenizer = has_tokenizer()});
    if (has_tokenizer()) add_control_stops(request, tokenizer());
    std::shared_ptr<const grammar::JsonSchema> grammar = grammar_of(request);
    queued.push_back({.request = std::move(request),
                      .grammar = std::move(grammar),
                      .sink = sinks[i],
                      .submitted_ns = state_->clock.now_ns()});
  }
  return state_->loop.queue().push(std::move(queued));
}

Result Engine::generate(Request request, const std::function<void(const Event&)>& on_event,
                        const std::stop_token& stop) {
  const auto sink = std::make_shared<CollectSink>();
  const RequestId id = submit(std::move(request), sink);
  std::size_t seen = 0;
  try {
    while (!sink->is_finished()) {
      if (stop.stop_requested()) cancel(id);
      step();
      for (; on_event && seen < sink->events.size(); ++seen) on_event(sink->events[seen]);
    }
  } catch (...) {
    cancel(id);
    throw;
  }
  sink->check();
  return std::move(*sink);
}

void Engine::cancel(RequestId id) noexcept { state_->loop.queue().cancel(id); }
bool Engine::step() { return state_->loop.step(); }

void Engine::run(std::stop_token stop) {
  RequestQueue& queue = state_->loop.queue();
  while (!stop.stop_requested()) {
    const std::vector<std::function<void()>> works = queue.take_work();
    for (const std::function<void()>& work : works) work();
    if (!step() && works.empty()) queue.wait(stop, state_->loop.has_undelivered());
  }
}

void Engine::post(std::function<void(Engine&)> work) {
  state_->loop.queue().post([this, work = std::move(work)] { work(*this); });
}

EngineStats Engine::stats() const { return state_->loop.queue().stats(); }

HiddenStates Engine::read(std::span<const TokenId> tokens, std::uint64_t salt) {
  const auto length = static_cast<Index>(tokens.size());
  HONE_CHECK(length >= 2 && length <= state_->info.context, "score",
             concat("2 to ", state_->info.context, " tokens"), length);
  check_ids(tokens, state_->runner.vocab_size(), "score");
  return state_->loop.read(tokens.first(tokens.size() - 1), salt);
}

std::span<const float> Engine::logits(const HiddenStates& states, Index first, Index count) {
  HONE_CHECK(first >= 0 && count > 0 && count <= logit_rows() && first + count <= states.rows,
             "logits", concat("up to ", logit_rows(), " of ", states.rows, " rows"),
             concat(count, " from ", first));
  return state_->runner.logits_of(states.values.data() + first * states.width, count);
}

Index Engine::logit_rows() const { return state_->runner.logit_rows(); }

ScoreResult Engine::score(std::span<const TokenId> tokens, const ScoreOptions& options) {
  HONE_TRACE_ZONE("score", {"tokens", tokens.size()});
  const HiddenStates states = read(tokens, options.salt);
  ScoreResult result;
  result.logprobs.resize(static_cast<std::size_t>(states.rows));
  for (Index first = 0; first < states.rows; first += logit_rows()) {
    const Index count = std::min(logit_rows(), states.rows - first);
    const std::span<const float> rows = logits(states, first, count);
    kernels::score_tokens({.rows = count,
                           .vocab = state_->runner.vocab_size(),
                           .logits = rows.data(),
                           .targets = tokens.data() + first + 1,
                           .log_probabilities = result.logprobs.data() + first},
                          *state_->options().executor);
    if (options.on_logits) options.on_logits(first + 1, count, rows);
  }
  return result;
}

}  // namespace hone::infer
