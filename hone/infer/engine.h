// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "hone/infer/collect.h"
#include "hone/infer/engine_options.h"
#include "hone/infer/model_header.h"
#include "hone/infer/model_info.h"
#include "hone/infer/request.h"
#include "hone/infer/sched/request_queue.h"
#include "hone/infer/score.h"

namespace hone::infer {

// Runs requests on one model. One thread, the engine thread, calls step() or run() and owns all
// state; submit() and cancel() only post messages to it.
//
//   waiting --step--> running --last token, stop, length--> finished
//      \---cancel--------\------------cancel, error------> cancelled, failed
//
// Requests run together, and each gets the same tokens as if it ran alone. Prompts that begin with
// the same tokens share their part of the KV cache.
class Engine {
 public:
  // Throws what ModelHeader::open_or_throw() and load() throw.
  static std::unique_ptr<Engine> open_or_throw(const std::filesystem::path& model,
                                               const EngineOptions& options);
  // Reads the weights. Throws Error{CorruptFile} if they are damaged or cannot be quantized as the
  // options say, and Error{Resource} if memory cannot be allocated.
  static std::unique_ptr<Engine> load(ModelHeader header);
  ~Engine();

  const ModelInfo& info() const;
  bool has_tokenizer() const;
  // Throws Error{Unsupported} if the model has none.
  const text::Tokenizer& tokenizer() const;

  // Thread-safe. Throws Error{InvalidArgument} for an invalid request, RefusedError for a prompt
  // that is too long and if the queue is full or the tenant has too many requests, and what
  // grammar::JsonSchema::compile() throws for a schema that is not enforced. Every accepted request
  // ends with exactly one event that has `finished`. If a sink refuses its events for 30 s, its
  // request is cancelled and the sink is dropped.
  RequestId submit(Request request, std::shared_ptr<EventSink> sink);
  // The same for several requests of one tenant and class, each with its sink: all are accepted, or
  // none. Requests with the same prompt share its part of the KV cache.
  std::vector<RequestId> submit(std::vector<Request> requests,
                                const std::vector<std::shared_ptr<EventSink>>& sinks);
  // Submits a request and calls step() until it has ended; call it on the engine thread. on_event
  // sees each event between steps. If it throws, the request is cancelled, and so it is when a stop
  // is requested. Throws what submit() throws, and the error of a request that fails.
  Result generate(Request request, const std::function<void(const Event&)>& on_event = {},
                  const std::stop_token& stop = {});
  // Thread-safe. May be called at any time, repeatedly, and with unknown ids.
  void cancel(RequestId id) noexcept;

  // Runs one step: a token of each request that generates, and a chunk of prompts. Returns false if
  // there was nothing to do.
  bool step();
  // Calls step() until a stop is requested; sleeps while idle.
  void run(std::stop_token stop);
  // Thread-safe. run() calls `work` on the engine thread between two steps. It may call what
  // belongs there, such as score(), and must not throw. Work that run() has not begun before it
  // returns is dropped.
  void post(std::function<void(Engine&)> work);
  EngineStats stats() const;

  // Reads `tokens` with teacher forcing, together with the running requests. Call this function and
  // the functions below on the engine thread. Throws Error{InvalidArgument} for fewer than 2 tokens
  // or more than the context. `salt` is the tenant, as of a Request.
  HiddenStates read(std::span<const TokenId> tokens, std::uint64_t salt = 0);
  // The logits [count, vocab] of rows first, first + 1, … of a text that this engine has read.
  // Valid until the next call. `count` is at most logit_rows(), the number of rows whose logits
  // take about 16 MiB.
  std::span<const float> logits(const HiddenStates& states, Index first, Index count);
  Index logit_rows() const;
  // Reads `tokens` and scores every token but the first.
  ScoreResult score(std::span<const TokenId> tokens, const ScoreOptions& options = {});

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hone::infer
