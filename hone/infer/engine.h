// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "hone/core/clock.h"
#include "hone/core/executor.h"
#include "hone/infer/model_info.h"
#include "hone/infer/request.h"

namespace hone::infer {

enum class KvDtype { Float16, Float32 };
enum class Activations {
  Int8,     // quantized weights multiply int8 activations; others f32
  Float32,  // f32 activations everywhere
};

struct EngineOptions {
  Executor* executor = nullptr;     // required; outlives the engine
  const Clock* clock = nullptr;     // null: steady_clock()
  std::filesystem::path tokenizer;  // overrides the one found with the model
  bool need_tokenizer = true;       // false: token ids only
  Index context = 0;                // 0: the model's own
  KvDtype kv = KvDtype::Float16;
  Activations activations = Activations::Int8;
  Index prefill_chunk = 512;  // prompt tokens of one step
  Index max_queue = 64;       // requests that may wait
};

struct EngineStats {
  Index waiting = 0, running = 0;
  Index submitted = 0, succeeded = 0, cancelled = 0, failed = 0;
};

struct ScoreOptions {
  // Called in order with logits [rows, vocab] that predict positions first_position… of the text.
  std::function<void(Index first_position, Index rows, std::span<const float> logits)> on_logits;
};

struct ScoreResult {
  // logprobs[i] = log p(tokens[i + 1] | tokens[0 … i]), natural logarithm.
  std::vector<double> logprobs;
};

// One model and the requests that run on it. One thread, the engine thread, calls step() or run()
// and owns all state behind it; submit() and cancel() only post messages.
//
//   waiting --step--> running --last token, stop, length--> finished
//      \---cancel--------\------------cancel, error------> cancelled, failed
//
// Today one request runs at a time, first come first served.
class Engine {
 public:
  // Error{NotFound, CorruptFile, Unsupported} as model_io; Error{Resource} when memory is refused.
  static std::unique_ptr<Engine> open_or_throw(const std::filesystem::path& model,
                                               const EngineOptions& options);
  ~Engine();

  const ModelInfo& info() const;
  bool has_tokenizer() const;
  // Error{Unsupported} when the model came without one.
  const text::Tokenizer& tokenizer() const;

  // Any thread. Error{InvalidArgument} for a request that cannot run, Error{Resource} when the
  // queue is full. Every accepted request ends with exactly one event that has `finished`.
  RequestId submit(Request request, std::shared_ptr<EventSink> sink);
  // Any thread, any time, any number of times.
  void cancel(RequestId id) noexcept;

  // One unit of work: a prefill chunk or a token. false: nothing could be done.
  bool step();
  // step() until stop is requested; sleeps while idle.
  void run(std::stop_token stop);
  EngineStats stats() const;

  // Teacher-forced: logits of every position of `tokens` in a fresh cache. Engine thread only,
  // while no request runs. Error{InvalidArgument} for fewer than 2 tokens or more than the context.
  ScoreResult score(std::span<const TokenId> tokens, const ScoreOptions& options = {});

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hone::infer
