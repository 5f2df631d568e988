// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/prefix_reuse.h"

#include <utility>
#include <vector>

#include "hone/bench/llm_driver.h"
#include "hone/core/check.h"

namespace hone::bench {
namespace {

using infer::Engine;
using infer::TokenId;

constexpr Index kRunningTokens = 256;  // more than the first request generates meanwhile
constexpr Index kBlockTokens = 32;     // prefixes are shared in whole blocks

// Prompts of one length on one engine.
class Prompts {
 public:
  Prompts(Engine& engine, Index prefix, std::stop_token stop)
      : driver_(engine, std::move(stop), /*seed=*/11), prefix_(prefix) {
    shared_ = draw(prefix);
  }
  Prompts(const Prompts&) = delete;
  Prompts& operator=(const Prompts&) = delete;
  ~Prompts() { cancel_first(); }

  // Ends the request that prepare_running() left running.
  void cancel_first() {
    if (first_.sink != nullptr) driver_.cancel(first_);
    first_ = {};
  }

  void prepare_cached() {
    cancel_first();
    answer(shared_, 1);
  }
  void prepare_running() {
    cancel_first();
    first_ = submit(shared_, kRunningTokens);
    driver_.wait_for_first_tokens({&first_, 1});
  }
  void run_shared() {
    expect_cached(answer(shared_, 1), prefix_ / kBlockTokens * kBlockTokens);
    HONE_CHECK(first_.sink == nullptr || !first_.sink->is_finished(), "bench llm",
               "a first request that runs", 0);
  }
  void run_other() { expect_cached(answer(draw(prefix_), 1), 0); }

 private:
  std::vector<TokenId> draw(Index count) { return driver_.random_tokens(drawn_++, count); }
  // A prompt with a tail of its own.
  LlmRun submit(std::vector<TokenId> tokens, Index new_tokens) {
    for (const TokenId id : draw(kTailTokens)) tokens.push_back(id);
    return driver_.submit(driver_.request(std::move(tokens), new_tokens));
  }
  // Returns the number of tokens that came from the cache.
  Index answer(std::vector<TokenId> tokens, Index new_tokens) {
    const Index before = driver_.engine().stats().cached_tokens;
    const LlmRun run = submit(std::move(tokens), new_tokens);
    driver_.wait_for_first_tokens({&run, 1});
    return driver_.engine().stats().cached_tokens - before;
  }
  static void expect_cached(Index cached, Index expected) {
    if (cached == expected) return;
    fail(ErrorCategory::Internal, "bench llm", concat(expected, " tokens from the cache"),
         concat(cached));
  }
  LlmDriver driver_;
  Index prefix_ = 0;
  std::uint64_t drawn_ = 0;
  std::vector<TokenId> shared_;
  LlmRun first_;  // no sink: none
};

}  // namespace

Index prefix_context(Index prefix) { return prefix + kTailTokens + kRunningTokens; }

void bench_prefix_reuse(const std::string& subject, Index prefix, Engine& engine, BenchRun& run) {
  HONE_CHECK(prefix > 0, "--prefix", "a positive number of tokens", prefix);
  Prompts prompts(engine, prefix, run.options().stop);
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
