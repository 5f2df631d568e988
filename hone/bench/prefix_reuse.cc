// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/prefix_reuse.h"

#include <memory>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/philox.h"

namespace hone::bench {
namespace {

using infer::Engine;
using infer::TokenId;

constexpr Index kRunningTokens = 256;  // more than the first request generates meanwhile
constexpr Index kBlockTokens = 32;     // prefixes are shared in whole blocks

class FirstTokenSink final : public infer::EventSink {
 public:
  bool try_push(infer::Event&& event) noexcept override {
    has_token = has_token || event.token.has_value();
    finished = finished || event.finished.has_value();
    if (event.finished == infer::FinishReason::Failed) error = std::move(event.error);
    return true;
  }
  bool has_token = false, finished = false;
  std::string error;
};

// Prompts of one length on one engine.
class Prompts {
 public:
  Prompts(Engine& engine, Index prefix) : engine_(engine), prefix_(prefix) {
    shared_ = draw(prefix);
  }
  Prompts(const Prompts&) = delete;
  Prompts& operator=(const Prompts&) = delete;
  ~Prompts() { cancel_first(); }

  // Ends the request that prepare_running() left running.
  void cancel_first() {
    if (first_.sink == nullptr) return;
    engine_.cancel(first_.id);
    while (!first_.sink->finished) engine_.step();
    first_ = {};
  }

  void prepare_cached() {
    cancel_first();
    answer(shared_, 1);
  }
  void prepare_running() {
    cancel_first();
    first_ = submit(shared_, kRunningTokens);
    wait_for_token(*first_.sink);
  }
  void run_shared() {
    expect_cached(answer(shared_, 1), prefix_ / kBlockTokens * kBlockTokens);
    HONE_CHECK(first_.sink == nullptr || !first_.sink->finished, "bench llm",
               "a first request that runs", 0);
  }
  void run_other() { expect_cached(answer(draw(prefix_), 1), 0); }

 private:
  struct Submitted {
    RequestId id = 0;
    std::shared_ptr<FirstTokenSink> sink{};
  };

  std::vector<TokenId> draw(Index count) {
    const auto vocab = static_cast<std::uint32_t>(engine_.info().architecture.vocab_size);
    std::vector<TokenId> tokens;
    for (Index i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random_.below(vocab)));
    return tokens;
  }
  // A prompt with a tail of its own.
  Submitted submit(std::vector<TokenId> tokens, Index new_tokens) {
    for (const TokenId id : draw(kTailTokens)) tokens.push_back(id);
    infer::Request request;
    request.tokens = std::move(tokens);
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    request.max_tokens = new_tokens;
    auto sink = std::make_shared<FirstTokenSink>();
    const RequestId id = engine_.submit(std::move(request), sink);
    return {id, std::move(sink)};
  }
  void wait_for_token(const FirstTokenSink& sink) {
    while (!sink.has_token && !sink.finished) engine_.step();
    if (!sink.error.empty()) fail(ErrorCategory::Internal, "bench llm", "a run", sink.error);
  }
  // Returns the number of tokens that came from the cache.
  Index answer(std::vector<TokenId> tokens, Index new_tokens) {
    const Index before = engine_.stats().cached_tokens;
    wait_for_token(*submit(std::move(tokens), new_tokens).sink);
    return engine_.stats().cached_tokens - before;
  }
  static void expect_cached(Index cached, Index expected) {
    if (cached == expected) return;
    fail(ErrorCategory::Internal, "bench llm", concat(expected, " tokens from the cache"),
         concat(cached));
  }
  Engine& engine_;
  Index prefix_ = 0;
  PhiloxStream random_{11};
  std::vector<TokenId> shared_;
  Submitted first_;  // no sink: none
};

}  // namespace

Index prefix_context(Index prefix) { return prefix + kTailTokens + kRunningTokens; }

void bench_prefix_reuse(const std::string& subject, Index prefix, Engine& engine, BenchRun& run) {
  HONE_CHECK(prefix > 0, "--prefix", "a positive number of tokens", prefix);
  Prompts prompts(engine, prefix);
  BenchCase result;
  result.name = concat(subject, "/prefix", prefix);
  result.contestants = {
      {"cached", [&] { prompts.run_shared(); }, [&] { prompts.prepare_cached(); }},
      {"running", [&] { prompts.run_shared(); }, [&] { prompts.prepare_running(); }},
      {"computed", [&] { prompts.run_other(); }, [&] { prompts.cancel_first(); }}};
  result.ours = {true, true, false};
  run.add(result);
}

}  // namespace hone::bench
