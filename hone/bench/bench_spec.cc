// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/bench_spec.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/philox.h"
#include "hone/infer/engine.h"

namespace hone::bench {
namespace {

using infer::Engine;
using infer::TokenId;
using Tokens = std::vector<TokenId>;

constexpr auto kRestBeforeSample = std::chrono::milliseconds(100);  // before each sample
constexpr Index kPromptTokens = 16;  // below a block of the cache, so that no prefix is shared

class TextSink final : public infer::EventSink {
 public:
  bool try_push(infer::Event&& event) noexcept override {
    if (event.token) tokens.push_back(*event.token);
    is_finished = event.finished.has_value();
    if (event.finished == infer::FinishReason::Failed) error = std::move(event.error);
    return true;
  }
  Tokens tokens;
  bool is_finished = false;
  std::string error;
};

// The known texts, by their first token. Each place of a text has a right draft or a wrong one,
// whatever the round.
struct Replay {
  std::vector<Tokens> texts{};
  double acceptance = 0;
  TokenId vocab = 0;

  Tokens propose(std::span<const TokenId> text, Index count) const {
    const auto which = static_cast<std::size_t>(text.front());
    Tokens drafts;
    for (std::size_t at = text.size(); at < texts[which].size(); ++at) {
      if (std::ssize(drafts) == count) break;
      const double u = PhiloxStream(which, at).uniform_double();
      const TokenId truth = texts[which][at];
      drafts.push_back(u < acceptance ? truth : (truth + 1) % vocab);
    }
    return drafts;
  }
};

// Sequences that decode together, with drafts or without.
class Decoding {
 public:
  Decoding(Engine& engine, Index sequences, Index tokens, std::optional<Index> depth)
      : engine_(engine), sequences_(sequences), tokens_(tokens), depth_(depth) {}

  // Computes the prompts; what follows is timed.
  void prepare() {
    std::this_thread::sleep_for(kRestBeforeSample);
    sinks_.clear();
    for (Index i = 0; i < sequences_; ++i) {
      sinks_.push_back(std::make_shared<TextSink>());
      infer::Request request;
      request.tokens = prompt(i);
      request.sampling.temperature = 0;
      request.ignore_eos = true;
      request.max_tokens = tokens_ + 1;
      request.spec.depth = depth_;
      engine_.submit(std::move(request), sinks_.back());
    }
    const auto has_begun = [](const auto& sink) {
      return sink->is_finished || !sink->tokens.empty();
    };
    while (!std::ranges::all_of(sinks_, has_begun)) engine_.step();
  }
  void run() {
    while (!std::ranges::all_of(sinks_, [](const auto& sink) { return sink->is_finished; })) {
      engine_.step();
    }
    for (const auto& sink : sinks_) {
      if (!sink->error.empty()) fail(ErrorCategory::Internal, "bench llm", "a run", sink->error);
    }
  }
  std::vector<Tokens> texts() const {
    std::vector<Tokens> texts;
    for (Index i = 0; i < sequences_; ++i) {
      const Tokens& output = sinks_[static_cast<std::size_t>(i)]->tokens;
      texts.push_back(prompt(i));
      texts.back().insert(texts.back().end(), output.begin(), output.end());
    }
    return texts;
  }

 private:
  // Begins with the number of the text.
  Tokens prompt(Index i) const {
    const auto vocab = static_cast<std::uint32_t>(engine_.info().architecture.vocab_size);
    PhiloxStream random(7, static_cast<std::uint64_t>(i));
    Tokens prompt{static_cast<TokenId>(i)};
    while (std::ssize(prompt) < kPromptTokens) {
      prompt.push_back(static_cast<TokenId>(random.below(vocab)));
    }
    return prompt;
  }

  Engine& engine_;
  Index sequences_, tokens_;
  std::optional<Index> depth_;
  std::vector<std::shared_ptr<TextSink>> sinks_;
};

void check(const BenchSpecOptions& options) {
  for (const double acceptance : options.acceptances) {
    HONE_CHECK(acceptance >= 0 && acceptance <= 1, "--spec", "probabilities", acceptance);
  }
  for (const Index sequences : options.sequences) {
    HONE_CHECK(sequences >= 1 && sequences <= 64, "--spec-sequences", "1 to 64", sequences);
  }
  HONE_CHECK(options.tokens >= 1 && options.tokens <= 4096, "--spec-tokens", "1 to 4096",
             options.tokens);
}

// What became of the drafts of all samples.
Json count_drafts(const std::string& name, const infer::EngineStats& before,
                  const infer::EngineStats& after) {
  const Index rounds = after.spec_rounds - before.spec_rounds;
  const Index drafted = after.drafted - before.drafted;
  const double k_mean = rounds > 0 ? static_cast<double>(drafted) / static_cast<double>(rounds) : 0;
  return {{"case", name},
          {"impl", "drafts"},
          {"drafted", drafted},
          {"examined", after.examined - before.examined},
          {"accepted", after.accepted - before.accepted},
          {"rounds", rounds},
          {"k_mean", k_mean}};
}

void bench_case(const std::string& name, Engine& engine, Index sequences,
                const BenchSpecOptions& options, BenchRun& run) {
  Decoding speculation(engine, sequences, options.tokens, options.depth);
  Decoding plain(engine, sequences, options.tokens, 0);
  const infer::ModelInfo& info = engine.info();
  const Json machine{{"isa", info.isa}, {"kernel", info.kernel}, {"threads", info.threads}};
  BenchCase work;
  work.name = name;
  work.tokens = static_cast<double>(sequences * options.tokens);
  work.contestants = {{"speculation", [&] { speculation.run(); }, [&] { speculation.prepare(); }},
                      {"plain", [&] { plain.run(); }, [&] { plain.prepare(); }}};
  work.ours = {true, false};
  work.extra = {machine, machine};
  const infer::EngineStats before = engine.stats();
  run.add(work);
  Json counts = count_drafts(name, before, engine.stats());
  const std::string note =
      concat(counts.at("accepted").get<Index>(), " of ", counts.at("examined").get<Index>(),
             " drafts accepted, ", counts.at("k_mean").get<double>(), " in a round");
  run.add_untimed(std::move(counts), note);
}

}  // namespace

void bench_spec(const BenchLlmOptions& models, const BenchSpecOptions& options, BenchRun& run,
                Executor& executor) {
  check(options);
  for (const BenchModel& model : bench_models(models)) {
    Replay replay;
    infer::EngineOptions engine_options;
    engine_options.executor = &executor;
    engine_options.need_tokenizer = false;
    engine_options.context = kPromptTokens + options.tokens + 2;
    engine_options.max_sequences =
        std::max<Index>(1, options.sequences.empty() ? 1 : std::ranges::max(options.sequences));
    engine_options.draft.function = [&replay](std::span<const TokenId> text, Index count) {
      return replay.propose(text, count);
    };
    const auto engine = Engine::open_or_throw(model.file, engine_options);
    replay.vocab = static_cast<TokenId>(engine->info().architecture.vocab_size);
    for (const Index sequences : options.sequences) {
      Decoding known(*engine, sequences, options.tokens, 0);
      known.prepare();
      known.run();
      replay.texts = known.texts();
      for (const double acceptance : options.acceptances) {
        replay.acceptance = acceptance;
        bench_case(concat(model.name, "/spec", acceptance, "x", sequences), *engine, sequences,
                   options, run);
      }
    }
  }
}

}  // namespace hone::bench
