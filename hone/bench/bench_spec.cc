// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/bench_spec.h"

#include <algorithm>
#include <utility>

#include "hone/bench/llm_driver.h"
#include "hone/core/check.h"
#include "hone/core/philox.h"

namespace hone::bench {
namespace {

using infer::Engine;
using infer::TokenId;
using Tokens = std::vector<TokenId>;

constexpr Index kPromptTokens = 16;  // below a block of the cache, so that no prefix is shared

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
  Decoding(Engine& engine, Index sequences, Index tokens, std::optional<Index> depth,
           std::stop_token stop)
      : driver_(engine, std::move(stop)), sequences_(sequences), tokens_(tokens), depth_(depth) {}

  // Computes the prompts; what follows is timed.
  void prepare() {
    rest_before_sample();
    runs_.clear();
    for (Index i = 0; i < sequences_; ++i) {
      infer::Request request = driver_.request(prompt(i), tokens_ + 1);
      request.spec.depth = depth_;
      runs_.push_back(driver_.submit(std::move(request)));
    }
    driver_.wait_for_first_tokens(runs_);
  }
  void run() { driver_.wait_for_ends(runs_); }
  std::vector<Tokens> texts() const {
    std::vector<Tokens> texts;
    for (Index i = 0; i < sequences_; ++i) {
      const Tokens& output = runs_[static_cast<std::size_t>(i)].sink->tokens;
      texts.push_back(prompt(i));
      texts.back().insert(texts.back().end(), output.begin(), output.end());
    }
    return texts;
  }

 private:
  // The first token of text i is i, so that no two prompts share a prefix.
  Tokens prompt(Index i) const {
    Tokens prompt = driver_.random_tokens(static_cast<std::uint64_t>(i), kPromptTokens);
    prompt.front() = static_cast<TokenId>(i);
    return prompt;
  }

  LlmDriver driver_;
  Index sequences_, tokens_;
  std::optional<Index> depth_;
  std::vector<LlmRun> runs_;
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
  const std::stop_token& stop = run.options().stop;
  Decoding speculation(engine, sequences, options.tokens, options.depth, stop);
  Decoding plain(engine, sequences, options.tokens, 0, stop);
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
      Decoding known(*engine, sequences, options.tokens, 0, run.options().stop);
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
