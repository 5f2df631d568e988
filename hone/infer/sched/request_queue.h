// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "hone/infer/grammar/json_schema.h"
#include "hone/infer/request.h"

namespace hone::infer {

// A submitted request that waits for the engine thread.
struct QueuedRequest {
  RequestId id = 0;
  Request request{};
  std::shared_ptr<const grammar::JsonSchema> schema{};  // of Request::json_schema
  std::shared_ptr<EventSink> sink{};
  std::int64_t submitted_ns = 0;
  std::shared_ptr<std::atomic<bool>> cancelled{};
};

// A bounded FIFO queue, and the only state that other threads share with the engine thread. One
// lock guards all of it and is held only briefly.
class RequestQueue {
 public:
  explicit RequestQueue(Index capacity) : capacity_(capacity) {}

  // Assigns the id. Throws Error{Resource} if `capacity` requests are waiting already.
  RequestId push(QueuedRequest request);
  // Sets the flag of a waiting or running request. Unknown ids are ignored.
  void cancel(RequestId id) noexcept;
  std::optional<QueuedRequest> pop();
  // Removes the waiting requests that were cancelled.
  std::vector<QueuedRequest> take_cancelled();
  // Removes the id of a finished request.
  void forget(RequestId id);
  // Returns when a message was posted, a stop was requested or, with `parked` work, a millisecond
  // has passed.
  void wait(const std::stop_token& stop, bool parked);
  Index waiting() const;

 private:
  const Index capacity_;
  mutable std::mutex mutex_;
  std::condition_variable_any posted_;
  std::deque<QueuedRequest> waiting_;
  std::map<RequestId, std::shared_ptr<std::atomic<bool>>>
      flags_;  // of waiting and running requests
  RequestId last_id_ = 0;
  bool news_ = false;
};

}  // namespace hone::infer
