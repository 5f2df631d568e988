// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include "hone/infer/grammar/json_schema.h"
#include "hone/infer/request.h"

namespace hone::infer {

// A submitted request on its way to the engine thread.
struct QueuedRequest {
  RequestId id = 0;
  Request request{};
  std::shared_ptr<const grammar::JsonSchema> schema{};  // compiled from Request::json_schema
  std::shared_ptr<EventSink> sink{};
  std::int64_t submitted_ns = 0;
  std::shared_ptr<std::atomic<bool>> cancelled{};
};

// Requests by state. At any time submitted = succeeded + cancelled + failed + running + waiting.
struct EngineStats {
  Index waiting = 0, running = 0;
  Index submitted = 0, succeeded = 0, cancelled = 0, failed = 0;
  Index preemptions = 0;    // requests that lost their part of the KV cache to others
  Index cached_tokens = 0;  // tokens that were taken from the prefix cache
  // Bytes of the KV cache: blocks with tokens, the part of them that only the prefix cache refers
  // to, and memory that the system provides.
  Index kv_used_bytes = 0, kv_cached_bytes = 0, kv_resident_bytes = 0;
  Index rows = 0;  // tokens that the model computed, drafts included
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
  explicit RequestQueue(Index capacity) : capacity_(capacity) {}

  // Assigns the id. Throws Error{Resource} if `capacity` requests are waiting already.
  RequestId push(QueuedRequest request);
  // Sets the flag of a request that has not ended. Unknown ids are ignored.
  void cancel(RequestId id) noexcept;
  // Returns after a message was posted, a stop was requested or, if work is `parked`, a millisecond
  // has passed.
  void wait(const std::stop_token& stop, bool parked);
  EngineStats stats() const;

  // Call the functions below on the engine thread.
  RequestId new_id();
  std::vector<QueuedRequest> take();        // new requests, in order of arrival
  std::vector<RequestId> take_cancelled();  // among the requests taken, each once
  void forget(RequestId id);                // after the request has ended
  // Sets the numbers of requests that run and that have ended, the bytes of the KV cache, and the
  // number of requests whose events wait for their readers.
  void report(const EngineStats& stats, Index undelivered);

 private:
  struct Flag {
    std::shared_ptr<std::atomic<bool>> cancelled;
    bool is_taken = false;  // returned by take_cancelled()
  };

  Index waiting() const;

  const Index capacity_;
  mutable std::mutex mutex_;
  std::condition_variable_any posted_;
  std::vector<QueuedRequest> arrived_;
  std::map<RequestId, Flag> flags_;  // for requests that have not ended
  EngineStats stats_;                // without `waiting`
  Index undelivered_ = 0;
  RequestId last_id_ = 0;
  bool news_ = false;
};

}  // namespace hone::infer
