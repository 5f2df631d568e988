// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "hone/core/function_ref.h"
#include "hone/core/machine/clock.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/thread/executor.h"
#include "hone/infer/engine_options.h"
#include "hone/infer/grammar/token_vocabulary.h"
#include "hone/infer/kv/kv_arena.h"
#include "hone/infer/model/model_runner.h"
#include "hone/infer/sched/request_queue.h"
#include "hone/infer/sched/scheduler.h"
#include "hone/infer/sched/sequence.h"
#include "hone/infer/score.h"
#include "hone/infer/spec/speculator.h"

namespace hone::infer {

struct LoopOptions {
  Index context = 0;              // maximum tokens of a text
  Index kv_bytes = 0;             // budget of the KV cache; 0: half of the free memory
  Index max_sequences = 16;       // sequences that run together
  Index max_queue = 64;           // requests that wait to run or for their readers
  Index prefill_chunk = 512;      // maximum prompt tokens of a step; below 16 or a multiple of 16
  Index max_tenant_requests = 0;  // see EngineOptions
  double prefill_seconds = 0;
  std::function<void(Index tokens)> on_progress = {};
  std::function<void()> on_step_end = {};
  // Bytes of memory that the process can still allocate.
  Index (*available_bytes)() = available_memory_bytes;
  // Bytes of weights in mapped files: the system calls their memory available, but a step that does
  // not find them there reads them from the disk.
  Index mapped_bytes = 0;
  Index free_bytes() const { return std::max<Index>(0, available_bytes() - mapped_bytes); }
};
// The options of a loop over texts of at most `context` tokens.
LoopOptions loop_options(const EngineOptions& options, Index context);
// The maximum number of rows of a step.
Index loop_rows(const LoopOptions& options);
// Throws Error{InvalidArgument} if the KV cache has a budget that exceeds the free memory or is too
// small for a text of 2 tokens.
void check_kv_budget(const LoopOptions& options, std::span<const LayerGroup> groups);

// Runs on the engine thread: executes the plans of a Scheduler on a model, samples, and delivers
// events. A request whose sink is full waits, while the other requests continue.
class EngineLoop {
 public:
  // The objects passed by reference or pointer must outlive the loop. `tokenizer` may be null.
  // Without `drafts`, there is no speculation.
  EngineLoop(const LoopOptions& options, ModelRunner& runner, const text::Tokenizer* tokenizer,
             std::vector<TokenId> stop_ids, Executor& executor, const Clock& clock,
             std::unique_ptr<DraftSource> drafts = nullptr);
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;
  // Cancels the requests that have not ended, and offers their last events once.
  ~EngineLoop();

  RequestQueue& queue() { return queue_; }
  const RequestQueue& queue() const { return queue_; }
  // The maximum number of tokens of a text. Thread-safe.
  Index max_length() const { return scheduler_.max_length(); }

  // Runs one step of the model and delivers events. Returns false if there was nothing to do.
  bool step();
  // Whether events wait for their sinks.
  bool has_undelivered() const;
  // Runs steps until the model has read the tokens, together with other requests, if any.
  HiddenStates read(std::span<const TokenId> tokens, std::uint64_t salt = 0);

 private:
  // A text to read.
  struct ReadJob {
    HiddenStates states{};
    std::exception_ptr failure{};
    bool is_done = false;
  };
  // A request that has not ended, or whose last events wait for its sink.
  struct Live {
    std::shared_ptr<EventSink> sink{};     // for a request that generates
    std::unique_ptr<Sequence> sequence{};  // the same; null after the request has ended
    ReadJob* read = nullptr;               // for a text that is only read
    std::deque<Event> outbox{};            // events that the sink did not accept, in order
    std::optional<Event> last{};           // final event, after these; storing it allocates nothing
    Index kv_blocks = 0, kv_bytes = 0;     // blocks in the last step, and their bytes
    std::exception_ptr failure{};
    std::optional<Refusal> refusal{};
    bool has_ended = false;
    TimeNs taken_ns = 0;  // when the sink last accepted an event, or the request ended

    bool has_undelivered() const { return !outbox.empty() || last; }
  };
  // A sequence of a plan: the rows whose outputs are wanted, and its result.
  struct Wanted {
    const PlannedSequence* planned = nullptr;
    Live* live = nullptr;
    SequenceResult result{};
    std::span<float> logits{};     // logits of its rows
    std::optional<Event> event{};  // event of a token that was sampled already
  };

  void propose_drafts();
  bool run_plan();
  void take_messages();
  void admit(QueuedRequest request);
  std::shared_ptr<const grammar::TokenVocabulary> vocabulary_of(const QueuedRequest& request);
  void take_cancelled();
  static bool deliver(Live& live, TimeNs now);
  bool flush();
  void hold(Live& live, const PlannedSequence& planned, Index rows) const;
  static bool is_over(const Live& live, TimeNs now);
  bool is_wanted(const Live& live) const;
  StepResult run(const StepPlan& plan);
  bool compute(const StepPlan& plan);
  StepBatch batch_of(const StepPlan& plan);
  void take_outputs(std::span<Wanted> wanted);
  void take_group(std::span<Wanted> group, Index first, Index count);
  static void attempt(Wanted& wanted, FunctionRef<void()> work);
  void choose_tokens(std::span<Wanted> group);
  void verify(Wanted& wanted);
  void take_states(const Wanted& wanted, Index first);
  bool end_requests();
  void finish(std::map<RequestId, Live>::iterator found, const Ended& ended);
  void give_up(RequestId id, const std::shared_ptr<EventSink>& sink);
  void push(Live& live, RequestId id, Event event);
  void end(Live& live, RequestId id, FinishReason reason,
           std::optional<StopCause> cause = std::nullopt);
  void end(Live& live, const Ended& ended);
  void fail_all();
  void report();
  void return_pages(bool is_idle);

  ModelRunner& runner_;
  const text::Tokenizer* tokenizer_;
  std::vector<TokenId> stop_ids_;
  Executor& executor_;
  const Clock& clock_;
  Scheduler scheduler_;
  KvArena arena_;
  RequestQueue queue_;
  std::unique_ptr<Speculator> speculator_;  // null without drafts
  // For masks; made for the first request with a schema.
  std::shared_ptr<const grammar::TokenVocabulary> vocabulary_;
  std::map<RequestId, Live> live_;
  std::vector<std::vector<std::byte*>> tables_;  // block tables of the batch, by sequence and group
  EngineStats ended_;                            // requests that succeeded, failed, …; rows
  std::function<void(Index tokens)> on_progress_;
  std::function<void()> on_step_end_;
  Index (*available_bytes_)();
  const Index mapped_bytes_;
  std::int64_t next_memory_check_ns_ = 0;
  bool in_step_ = false;
};

}  // namespace hone::infer
