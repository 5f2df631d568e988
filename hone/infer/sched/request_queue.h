// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "hone/infer/grammar/json_schema.h"
#include "hone/infer/request.h"

namespace hone::infer {

// A submitted request on its way to the engine thread.
struct QueuedRequest {
  RequestId id = 0;
  Request request{};
  std::shared_ptr<const grammar::JsonSchema> grammar{};  // Request::grammar or ::json_schema
  std::shared_ptr<EventSink> sink{};
  // A request that was pushed before with the same prompt, whose part of the KV cache it takes.
  std::optional<RequestId> fork_of{};
  std::int64_t submitted_ns = 0;
  std::shared_ptr<std::atomic<bool>> cancelled{};
};

// Requests by state. At any time submitted = succeeded + cancelled + failed + running + waiting.
struct EngineStats {
  Index waiting = 0, running = 0;
  Index submitted = 0, succeeded = 0, cancelled = 0, failed = 0;
  Index parked = 0;       // part of `running`: wait for their readers
  Index preemptions = 0;  // requests that lost their part of the KV cache to others
  // Tokens of the texts of started requests, counted at each start, and the part of them that was
  // taken from the prefix cache.
  Index started_tokens = 0, cached_tokens = 0;
  Index evictions = 0;  // parts of 32 tokens that the prefix cache gave up
  Index prompt_tokens = 0, generated_tokens = 0;  // of requests that have ended
  // Bytes of the KV cache: blocks with tokens, the part of them that only the prefix cache refers
  // to, and memory that the system provides.
  Index kv_used_bytes = 0, kv_cached_bytes = 0, kv_resident_bytes = 0;
  Index kv_budget_bytes = 0;  // what blocks may take
  Index steps = 0;            // runs of the model
  double step_seconds = 0;    // their duration
  Index rows = 0;             // tokens that the model computed, drafts included
  // Rounds with drafts, and their drafts as SpecStats counts them.
  Index spec_rounds = 0, drafted = 0, examined = 0, accepted = 0;
  Index draft_rows = 0;  // tokens that the draft model computed
};

// The messages that other threads post to the engine thread, and the only state that they share
// with it. One lock guards all of it and is locked only briefly.
class RequestQueue {
 public:
  // `capacity` limits the number of requests that wait to run, whether or not the engine thread has
  // taken them, plus those whose events wait for a reader. Nothing else limits the latter.
  // `tenant_capacity` limits the requests of a tenant that have not ended; 0: no limit.
  explicit RequestQueue(Index capacity, Index tenant_capacity = 0)
      : capacity_(capacity), tenant_capacity_(tenant_capacity) {}

  // Assigns the id. Throws RefusedError{Resource} if `capacity` requests are waiting already, or
  // the tenant has too many.
  RequestId push(QueuedRequest request);
  // The same for several requests of one tenant: all or none. Those with the prompt of an earlier
  // one fork it. Throws Error{InvalidArgument} if there are more than could ever wait.
  std::vector<RequestId> push(std::vector<QueuedRequest> requests);
  // Work for the engine thread, between two steps.
  void post(std::function<void()> work);
  // Sets the flag of a request that has not ended. Unknown ids are ignored.
  void cancel(RequestId id) noexcept;
  // Returns after a message was posted, a stop was requested or, if work is `parked`, a millisecond
  // has passed.
  void wait(const std::stop_token& stop, bool parked);
  EngineStats stats() const;

  // Call the functions below on the engine thread.
  RequestId new_id();
  std::vector<QueuedRequest> take();  // new requests, in order of arrival
  std::vector<std::function<void()>> take_work();
  std::vector<RequestId> take_cancelled();  // among the requests taken, each once
  void forget(RequestId id);                // after the request has ended
  // Sets the numbers of requests that run and that have ended, the bytes of the KV cache, and the
  // number of requests whose events wait for their readers.
  void report(const EngineStats& stats, Index undelivered);

 private:
  struct Flag {
    std::shared_ptr<std::atomic<bool>> cancelled;
    std::uint64_t salt = 0;
    bool is_taken = false;  // returned by take_cancelled()
  };

  Index waiting() const;
  void check_room(Index more, std::uint64_t salt) const;

  const Index capacity_, tenant_capacity_;
  mutable std::mutex mutex_;
  std::condition_variable_any posted_;
  std::vector<QueuedRequest> arrived_;
  std::vector<std::function<void()>> work_;
  std::map<std::uint64_t, Index> open_;  // requests that have not ended, by tenant
  std::map<RequestId, Flag> flags_;      // for requests that have not ended
  EngineStats stats_;                    // without `waiting`
  Index undelivered_ = 0;
  RequestId last_id_ = 0;
  bool news_ = false;
};

}  // namespace hone::infer
