// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <stop_token>
#include <vector>

#include "hone/core/function_ref.h"
#include "hone/core/philox.h"
#include "hone/infer/engine.h"

namespace hone::bench {

// A request on its way.
struct LlmRun {
  RequestId id = 0;
  std::shared_ptr<infer::CollectSink> sink = {};  // null: none
};

// Requests of random tokens on one engine, as the benches of language models make them.
class LlmDriver {
 public:
  LlmDriver(infer::Engine& engine, std::stop_token stop, std::uint64_t seed = 7)
      : engine_(engine), stop_(std::move(stop)), seed_(seed) {}

  infer::Engine& engine() const { return engine_; }
  // The same tokens for the same stream.
  std::vector<infer::TokenId> random_tokens(std::uint64_t stream, Index count) const;
  // Generates `new_tokens` tokens greedily; stop tokens do not end it.
  infer::Request request(std::vector<infer::TokenId> prompt, Index new_tokens) const;

  LlmRun submit(infer::Request request, infer::CollectSink::Hook hook = {});
  // Steps until done() is true. Throws the error of a run that failed, Error{Cancelled} if a stop
  // is requested, and Error{Internal} if the engine has nothing to do.
  void step_until(std::span<const LlmRun> runs, FunctionRef<bool()> done);
  void wait_for_first_tokens(std::span<const LlmRun> runs);
  void wait_for_ends(std::span<const LlmRun> runs);
  // Cancels the run and waits for its end.
  void cancel(const LlmRun& run);

 private:
  infer::Engine& engine_;
  std::stop_token stop_;
  std::uint64_t seed_;
};

// Idle threads of other programs spin for a while. Call it before each sample.
void rest_before_sample();

}  // namespace hone::bench
