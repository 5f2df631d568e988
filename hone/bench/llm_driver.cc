// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/llm_driver.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "hone/core/check.h"

namespace hone::bench {

std::vector<infer::TokenId> LlmDriver::random_tokens(std::uint64_t stream, Index count) const {
  PhiloxStream random(seed_, stream);
  const auto vocab = static_cast<std::uint32_t>(engine_.info().architecture.vocab_size);
  std::vector<infer::TokenId> tokens;
  for (Index i = 0; i < count; ++i) {
    tokens.push_back(static_cast<infer::TokenId>(random.below(vocab)));
  }
  return tokens;
}

infer::Request LlmDriver::request(std::vector<infer::TokenId> prompt, Index new_tokens) const {
  infer::Request request;
  request.tokens = std::move(prompt);
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  request.max_tokens = new_tokens;
  return request;
}

LlmRun LlmDriver::submit(infer::Request request, infer::CollectSink::Hook hook) {
  auto sink = std::make_shared<infer::CollectSink>(std::move(hook));
  const RequestId id = engine_.submit(std::move(request), sink);
  return {id, std::move(sink)};
}

void LlmDriver::step_until(std::span<const LlmRun> runs, FunctionRef<bool()> done) {
  while (!done()) {
    if (stop_.stop_requested()) {
      throw Error(ErrorCategory::Cancelled, "the bench was interrupted");
    }
    const bool is_idle = !engine_.step();
    for (const LlmRun& run : runs) run.sink->check();
    if (is_idle && !done()) {
      fail(ErrorCategory::Internal, "bench llm", "requests that run", "an idle engine");
    }
  }
}

void LlmDriver::wait_for_first_tokens(std::span<const LlmRun> runs) {
  step_until(runs, [&] {
    return std::ranges::all_of(runs, [](const LlmRun& run) { return run.sink->has_begun(); });
  });
}

void LlmDriver::wait_for_ends(std::span<const LlmRun> runs) {
  step_until(runs, [&] {
    return std::ranges::all_of(runs, [](const LlmRun& run) { return run.sink->is_finished(); });
  });
}

void LlmDriver::cancel(const LlmRun& run) {
  engine_.cancel(run.id);
  while (!run.sink->is_finished()) engine_.step();
}

void rest_before_sample() { std::this_thread::sleep_for(std::chrono::milliseconds(300)); }

}  // namespace hone::bench
