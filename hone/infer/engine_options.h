// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>

#include "hone/core/machine/clock.h"
#include "hone/core/thread/executor.h"
#include "hone/infer/kv_size.h"
#include "hone/infer/speculation.h"
#include "hone/infer/weight_options.h"

namespace hone::infer {

enum class Activations {
  Int8,     // int8 activations with quantized weights, otherwise f32
  Float32,  // f32 activations with all weights
};

struct EngineOptions {
  Executor* executor = nullptr;          // required; must outlive the engine
  const Clock* clock = nullptr;          // null means steady_clock()
  std::filesystem::path tokenizer = {};  // replaces the one found with the model
  bool need_tokenizer = true;            // if false, models without a tokenizer open as well
  WeightOptions weights = {};
  Index context = 0;  // 0 means the model's own
  KvDtype kv = KvDtype::Float16;
  Activations activations = Activations::Int8;
  // Maximum prompt tokens of a step. From 16 on, rounded down to a multiple of 16.
  Index prefill_chunk = 512;
  Index max_queue = 64;      // maximum number of requests that wait to run or for their readers
  Index max_sequences = 16;  // maximum number of requests that run together
  // Maximum number of requests of a tenant (Request::salt) that have not ended; 0: no limit.
  Index max_tenant_requests = 0;
  // A step without decodes ends its prefill after about so many seconds, but not before 128 tokens,
  // so that requests that arrive meanwhile get their turn; 0: no limit.
  double prefill_seconds = 0;
  Index kv_bytes = 0;  // budget of the KV cache; 0: half of the free memory
  // Called on the engine thread before each layer of a step, with the number of tokens that the
  // model has computed since it was opened. The tokens of the current step count in proportion to
  // the finished layers.
  std::function<void(Index tokens)> on_progress = {};
  // Called on the engine thread at the end of each step, after its events went to their sinks. Must
  // not throw.
  std::function<void()> on_step_end = {};
  // Where drafts for speculative decoding come from. open_or_throw() throws
  // Error{InvalidArgument} for several sources, or for a draft model of another vocabulary.
  DraftOptions draft = {};
};

}  // namespace hone::infer
