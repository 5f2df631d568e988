// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sched/request_queue.h"

#include <chrono>
#include <utility>

#include "hone/core/check.h"

namespace hone::infer {

RequestId RequestQueue::push(QueuedRequest request) {
  const std::lock_guard lock(mutex_);
  if (static_cast<Index>(waiting_.size()) >= capacity_) {
    fail(ErrorCategory::Resource, "submit",
         concat("The queue of ", capacity_, " requests is full."));
  }
  request.id = ++last_id_;
  request.cancelled = std::make_shared<std::atomic<bool>>(false);
  flags_[request.id] = request.cancelled;
  waiting_.push_back(std::move(request));
  news_ = true;
  posted_.notify_one();
  return last_id_;
}

void RequestQueue::cancel(RequestId id) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = flags_.find(id);
  if (found == flags_.end()) return;
  found->second->store(true, std::memory_order_relaxed);
  news_ = true;
  posted_.notify_one();
}

std::optional<QueuedRequest> RequestQueue::pop() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return std::nullopt;
  QueuedRequest request = std::move(waiting_.front());
  waiting_.pop_front();
  return request;
}

std::vector<QueuedRequest> RequestQueue::take_cancelled() {
  const std::lock_guard lock(mutex_);
  std::vector<QueuedRequest> taken;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->cancelled->load(std::memory_order_relaxed)) {
      taken.push_back(std::move(*it));
      it = waiting_.erase(it);
    } else {
      ++it;
    }
  }
  return taken;
}

void RequestQueue::forget(RequestId id) {
  const std::lock_guard lock(mutex_);
  flags_.erase(id);
}

void RequestQueue::wait(const std::stop_token& stop, bool parked) {
  std::unique_lock lock(mutex_);
  const auto has_news = [this] { return news_; };
  if (parked) {
    posted_.wait_for(lock, stop, std::chrono::milliseconds(1), has_news);
  } else {
    posted_.wait(lock, stop, has_news);
  }
  news_ = false;
}

Index RequestQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<Index>(waiting_.size());
}

}  // namespace hone::infer
