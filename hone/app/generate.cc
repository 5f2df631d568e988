// SPDX-License-Identifier: Apache-2.0
#include "hone/app/generate.h"

#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>

#include "hone/app/blame_weights.h"
#include "hone/app/generate_json.h"
#include "hone/app/loaded_weights.h"
#include "hone/app/schema_check.h"
#include "hone/app/serve/chat_template.h"
#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/machine/clock.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/machine/trace.h"
#include "hone/core/progress.h"
#include "hone/kernels/roof/memory_roofs.h"
#include "hone/measure/measure.h"
#include "hone/text/turn_tokens.h"

namespace hone::app {
namespace {

using infer::Engine;
using infer::Event;
using infer::TokenId;

constexpr Index kShareTokens = 16;  // fewer decoded ones are too short to time

// Shows how much of the prompt the model has read, until the text begins.
class PromptProgress {
 public:
  explicit PromptProgress(const Clock& clock) : clock_(clock) {}
  void begin(Index tokens) {
    total_ = tokens;
    shown_.emplace("reading the prompt", tokens, "tokens", clock_);
  }
  // `tokens` are all that the engine has computed.
  void update(Index tokens) {
    if (shown_) shown_->update(std::min(tokens, total_));
  }
  void end() {
    update(total_);
    shown_.reset();
  }

 private:
  const Clock& clock_;
  Index total_ = 0;
  std::optional<Progress> shown_;
};

std::vector<TokenId> chat_tokens(const infer::ModelHeader& header, const GenerateOptions& options) {
  const text::Tokenizer& tokenizer = header.tokenizer();
  const auto chat = open_chat_template(header.chat_template(), tokenizer, {});
  if (chat == nullptr) {
    fail_unsupported(options.model.string(), "a model with a chat template", "a model without one");
  }
  Json messages = Json::array();
  if (!options.system.empty()) {
    messages.push_back({{"role", "system"}, {"content", options.system}});
  }
  messages.push_back({{"role", "user"}, {"content", options.prompt}});
  const auto prompt = chat->render({.messages = std::move(messages), .now = std::time(nullptr)});
  return text::with_bos(tokenizer, tokenizer.encode(prompt));
}

std::vector<TokenId> prompt_tokens(const infer::ModelHeader& header,
                                   const GenerateOptions& options) {
  if (options.prompt_ids) return *options.prompt_ids;
  HONE_TRACE_ZONE("tokenize", {"bytes", options.prompt.size()});
  const text::Tokenizer& tokenizer = header.tokenizer();
  if (options.chat) return chat_tokens(header, options);
  std::vector<TokenId> ids = tokenizer.encode(options.prompt, options.encoding());
  const auto bos = tokenizer.bos();
  if (bos && ids.size() >= 2 && ids[0] == *bos && ids[1] == *bos) {
    log_warning(
        "The prompt begins with BOS twice: the text has it, and the tokenizer adds it (--no-bos "
        "leaves that out).");
  }
  if (text::EncodeOptions special = options.encoding(); !special.parse_special) {
    special.parse_special = true;
    if (tokenizer.encode(options.prompt, special) != ids) {
      log_info(
          "the prompt spells special tokens, which are plain text here; --parse-special turns them "
          "into tokens");
    }
  }
  return ids;
}

infer::Request make_request(const infer::ModelHeader& header, const GenerateOptions& options) {
  infer::Request request = options.request;
  request.tokens = prompt_tokens(header, options);
  request.sampling = infer::resolve_sampling(
      request.sampling, options.sampling,
      options.use_model_defaults ? header.generation_defaults() : Json::object());
  return request;
}

std::string prompt_text(const Engine& engine, const GenerateOptions& options) {
  if (!options.prompt_ids) return options.prompt;
  return text_of(engine, *options.prompt_ids);
}

// Read bandwidth, in bytes per second, by the threads that have just decoded.
double measure_read_bandwidth(Executor& executor) {
  const kernels::MemoryProbe memory =
      kernels::make_memory_probe(kernels::MemoryTraffic::Read, executor);
  const auto measurer = measure::make_measurer();
  const Measurement measurement =
      measurer->measure({&memory.contestant, 1}, {.min_samples = 5, .max_samples = 5});
  return memory.bytes / measurer->spread(measurement.seconds[0]).median;
}

// Adds "bw_share": the bytes that decoding read per second, divided by the read bandwidth measured
// immediately after it, which may have been another while it decoded; or null and the reason,
// "no_bw_share".
void add_bandwidth_share(const Engine& engine, const infer::Timings& timings, Executor& executor,
                         Json& document) {
  const infer::ModelInfo& info = engine.info();
  const Index decoded = timings.generated_tokens - 1;  // the first one belongs to the prompt
  std::string reason = kernels::why_no_memory_share(info.weight_bytes, cpu_info().last_cache_bytes);
  if (reason.empty() && decoded < kShareTokens) {
    reason = concat("no share of memory bandwidth: fewer than ", kShareTokens,
                    " tokens were decoded after the first");
  }
  document["bw_share"] = nullptr;
  if (!reason.empty()) {
    document["no_bw_share"] = reason;
    return;
  }
  const double bytes = infer::decode_bytes(info, timings.prompt_tokens, decoded);
  document["bw_share"] = bytes / timings.decode_s / measure_read_bandwidth(executor);
}

// What became of drafts: counts, the mean number of drafts in a round, and for each place in a
// round how many drafts were examined there and accepted.
Json spec_json(const infer::SpecStats& spec) {
  Json places = Json::array();
  for (std::size_t i = 0; i < spec.examined_at.size() && spec.examined_at[i] > 0; ++i) {
    places.push_back({{"examined", spec.examined_at[i]}, {"accepted", spec.accepted_at[i]}});
  }
  return {{"drafted", spec.drafted},     {"examined", spec.examined},
          {"accepted", spec.accepted},   {"rounds", spec.rounds},
          {"k_mean", spec.mean_depth()}, {"per_position", std::move(places)}};
}

Json make_document(const Engine& engine, const GenerateOptions& options,
                   const GenerateResult& result, const std::vector<Event>& events) {
  const infer::ModelInfo& info = engine.info();
  const Event& last = events.back();
  Json document = {{"text", result.text},
                   {"tokens", result.tokens},
                   {"finish_reason", name_of(result.finish_reason)},
                   {"timings", timings_json(result.timings)},
                   {"kv",
                    {{"bytes", last.kv_bytes},
                     {"blocks", last.kv_blocks},
                     {"bytes_per_token", info.kv_bytes_per_token},
                     {"type", infer::name_of(options.engine.kv)}}},
                   {"isa", info.isa},
                   {"kernel", info.kernel},
                   {"threads", info.threads},
                   {"weights", weights_json(info, options.engine.weights.format)},
                   {"seed", options.request.sampling.seed}};
  if (options.request.logprobs > 0) document["logprobs"] = logprobs_json(engine, events);
  if (last.spec) document["spec"] = spec_json(*last.spec);
  if (Json ignored = ignored_keywords(options.request); !ignored.is_null()) {
    document["schema_ignored"] = std::move(ignored);
  }
  return document;
}

}  // namespace

GenerateResult generate(const GenerateOptions& options, Executor& executor) {
  infer::EngineOptions engine_options = options.engine;
  engine_options.executor = &executor;
  engine_options.need_tokenizer = !options.prompt_ids.has_value();
  check_default_schema(options.request);
  const Clock& clock = engine_options.clock != nullptr ? *engine_options.clock : steady_clock();
  PromptProgress progress(clock);
  engine_options.on_progress = [&](Index tokens) { progress.update(tokens); };
  const TimeNs opening = clock.now_ns();
  auto header = infer::ModelHeader::open_or_throw(options.model, engine_options);
  double load_s = seconds_between(opening, clock.now_ns());
  infer::Request request = make_request(header, options);
  header.check(request);
  const TimeNs loading = clock.now_ns();
  std::unique_ptr<Engine> engine;
  blame_weights({&options.model, 1}, [&] { engine = Engine::load(std::move(header)); });
  load_s += seconds_between(loading, clock.now_ns());
  log_loaded(engine->info());

  GenerateResult result;
  if (options.echo) result.text = prompt_text(*engine, options);
  if (options.on_text && !result.text.empty()) options.on_text(result.text);

  progress.begin(std::ssize(request.tokens));
  infer::Result made;
  try {
    made = engine->generate(
        std::move(request),
        [&](const Event& event) {
          progress.end();
          if (options.on_text && !event.text.empty()) options.on_text(event.text);
        },
        options.stop);
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::Internal) throw;
    blame_weights({&options.model, 1}, [] { throw; });
  }
  result.tokens = std::move(made.tokens);
  result.text += made.text;
  result.finish_reason = made.finish_reason();
  result.timings = made.last().timings;
  result.document = make_document(*engine, options, result, made.events);
  result.document["timings"]["load_ms"] = load_s * 1e3;
  if (options.measure_share) {
    add_bandwidth_share(*engine, result.timings, executor, result.document);
  }
  return result;
}

}  // namespace hone::app
