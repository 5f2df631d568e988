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
  Int8,     // int8 activations with quantized weights, otherwise f32
  Float32,  // f32 activations with all weights
};

struct EngineOptions {
  Executor* executor = nullptr;     // required; must outlive the engine
  const Clock* clock = nullptr;     // null means steady_clock()
  std::filesystem::path tokenizer;  // replaces the one found with the model
  bool need_tokenizer = true;       // if false, models without a tokenizer open as well
  Index context = 0;                // 0 means the model's own
  KvDtype kv = KvDtype::Float16;
  Activations activations = Activations::Int8;
  Index prefill_chunk = 512;  // prompt tokens per step
  Index max_queue = 64;       // maximum number of waiting requests
};

struct EngineStats {
  Index waiting = 0, running = 0;
  Index submitted = 0, succeeded = 0, cancelled = 0, failed = 0;
};

struct ScoreOptions {
  // Called in order with the logits [rows, vocab] that predict positions first_position… of the
  // text.
  std::function<void(Index first_position, Index rows, std::span<const float> logits)> on_logits;
};

struct ScoreResult {
  // logprobs[i] = log p(tokens[i + 1] | tokens[0 … i]), natural logarithm.
  std::vector<double> logprobs;
};

// Runs requests on one model. One thread, the engine thread, calls step() or run() and owns all
// state; submit() and cancel() only post messages to it.
//
//   waiting --step--> running --last token, stop, length--> finished
//      \---cancel--------\------------cancel, error------> cancelled, failed
//
// One request runs at a time, in order of submission.
class Engine {
 public:
  // Throws Error{NotFound, CorruptFile, Unsupported} as model_io does, and Error{Resource} if
  // memory cannot be allocated.
  static std::unique_ptr<Engine> open_or_throw(const std::filesystem::path& model,
                                               const EngineOptions& options);
  ~Engine();

  const ModelInfo& info() const;
  bool has_tokenizer() const;
  // Throws Error{Unsupported} if the model has none.
  const text::Tokenizer& tokenizer() const;

  // Thread-safe. Throws Error{InvalidArgument} for an invalid request, Error{Resource} if the queue
  // is full, and what grammar::JsonSchema::compile() throws for a schema that is not enforced.
  // Every accepted request ends with exactly one event that has `finished`.
  RequestId submit(Request request, std::shared_ptr<EventSink> sink);
  // Thread-safe. May be called at any time, repeatedly, and with unknown ids.
  void cancel(RequestId id) noexcept;

  // Does one unit of work: a prefill chunk or a token. Returns false if there was nothing to do.
  bool step();
  // Calls step() until a stop is requested; sleeps while idle.
  void run(std::stop_token stop);
  EngineStats stats() const;

  // Evaluates `tokens` with teacher forcing in a fresh cache. Call it on the engine thread while no
  // request runs. Throws Error{InvalidArgument} for fewer than 2 tokens or more than the context.
  ScoreResult score(std::span<const TokenId> tokens, const ScoreOptions& options = {});

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hone::infer
