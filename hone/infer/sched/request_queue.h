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

#include "hone/infer/request.h"

namespace hone::infer {

// A request on its way to the engine thread.
struct QueuedRequest {
  RequestId id = 0;
  Request request{};
  std::shared_ptr<EventSink> sink{};
  std::int64_t submitted_ns = 0;
  std::shared_ptr<std::atomic<bool>> cancelled{};
};

// Bounded, first in first out: the only state that other threads share with the engine thread. The
// lock guards everything below; nothing else happens under it.
class RequestQueue {
 public:
  explicit RequestQueue(Index capacity) : capacity_(capacity) {}

  // Assigns the id. Error{Resource} when `capacity` requests wait already.
  RequestId push(QueuedRequest request);
  // Raises the flag of a waiting or running request; unknown ids are ignored.
  void cancel(RequestId id) noexcept;
  std::optional<QueuedRequest> pop();
  // Removes the waiting requests that were cancelled.
  std::vector<QueuedRequest> take_cancelled();
  // A finished request's id is unknown from now on.
  void forget(RequestId id);
  // Returns when something was posted, a stop was requested, or a millisecond has passed with
  // `parked` work.
  void wait(const std::stop_token& stop, bool parked);
  Index waiting() const;

 private:
  const Index capacity_;
  mutable std::mutex mutex_;
  std::condition_variable_any posted_;
  std::deque<QueuedRequest> waiting_;
  std::map<RequestId, std::shared_ptr<std::atomic<bool>>> flags_;  // waiting and running
  RequestId last_id_ = 0;
  bool news_ = false;
};

}  // namespace hone::infer
