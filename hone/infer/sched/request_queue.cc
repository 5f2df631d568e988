// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sched/request_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "hone/core/check.h"

namespace hone::infer {

Index RequestQueue::waiting() const {
  return stats_.submitted - stats_.running - stats_.succeeded - stats_.cancelled - stats_.failed;
}

void RequestQueue::check_room(Index more, std::uint64_t salt) const {
  const Index most = tenant_capacity_ > 0 ? std::min(capacity_, tenant_capacity_) : capacity_;
  HONE_CHECK(more <= most, "submit", concat("at most ", most, " requests at once"), more);
  if (waiting() + undelivered_ + more > capacity_) {
    throw RefusedError(
        Refusal::QueueFull, ErrorCategory::Resource,
        concat("[submit] The request was refused: ", name_of(Refusal::QueueFull), ", as ",
               waiting() + undelivered_, " of ", capacity_, " requests wait",
               undelivered_ > 0 ? " to run or for their readers." : "."));
  }
  const auto found = open_.find(salt);
  const Index open = found == open_.end() ? 0 : found->second;
  if (tenant_capacity_ > 0 && open + more > tenant_capacity_) {
    throw RefusedError(Refusal::TenantFull, ErrorCategory::Resource,
                       concat("[submit] The request was refused: ", name_of(Refusal::TenantFull),
                              ", as ", open, " requests of this client have not ended."));
  }
}

RequestId RequestQueue::push(QueuedRequest request) {
  std::vector<QueuedRequest> one;
  one.push_back(std::move(request));
  return push(std::move(one)).front();
}

std::vector<RequestId> RequestQueue::push(std::vector<QueuedRequest> requests) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t salt = requests.front().request.salt;
  check_room(std::ssize(requests), salt);
  std::vector<RequestId> ids;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    QueuedRequest& request = requests[i];
    request.id = last_id_ + 1 + static_cast<RequestId>(i);
    request.cancelled = std::make_shared<std::atomic<bool>>(false);
    for (std::size_t k = 0; k < i && !request.fork_of; ++k) {
      if (requests[k].request.tokens == request.request.tokens) request.fork_of = ids[k];
    }
    ids.push_back(request.id);
  }
  arrived_.reserve(arrived_.size() + requests.size());
  for (QueuedRequest& request : requests) {
    flags_[request.id] = {.cancelled = request.cancelled, .salt = salt};
    arrived_.push_back(std::move(request));
    ++stats_.submitted;
    ++open_[salt];
    ++last_id_;
  }
  news_ = true;
  posted_.notify_one();
  return ids;
}

void RequestQueue::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  news_ = true;
  posted_.notify_one();
}

std::vector<std::function<void()>> RequestQueue::take_work() {
  const std::lock_guard lock(mutex_);
  return std::exchange(work_, {});
}

void RequestQueue::cancel(RequestId id) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = flags_.find(id);
  if (found == flags_.end()) return;
  found->second.cancelled->store(true, std::memory_order_relaxed);
  news_ = true;
  posted_.notify_one();
}

RequestId RequestQueue::new_id() {
  const std::lock_guard lock(mutex_);
  return ++last_id_;
}

std::vector<QueuedRequest> RequestQueue::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(arrived_, {});
}

std::vector<RequestId> RequestQueue::take_cancelled() {
  const std::lock_guard lock(mutex_);
  std::vector<RequestId> ids;
  ids.reserve(static_cast<std::size_t>(std::ranges::count_if(flags_, [](const auto& one) {
    return one.second.cancelled->load(std::memory_order_relaxed);
  })));
  for (auto& [id, flag] : flags_) {
    if (!arrived_.empty() && id >= arrived_.front().id) break;  // told once they are taken
    if (flag.is_taken || !flag.cancelled->load(std::memory_order_relaxed)) continue;
    flag.is_taken = true;
    ids.push_back(id);
  }
  return ids;
}

void RequestQueue::forget(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto found = flags_.find(id);
  if (found == flags_.end()) return;
  const auto open = open_.find(found->second.salt);
  if (open != open_.end() && --open->second <= 0) open_.erase(open);
  flags_.erase(found);
}

void RequestQueue::report(const EngineStats& stats, Index undelivered) {
  const std::lock_guard lock(mutex_);
  undelivered_ = undelivered;
  const Index submitted = stats_.submitted;
  stats_ = stats;
  stats_.submitted = submitted;
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

EngineStats RequestQueue::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.waiting = waiting();
  return stats;
}

}  // namespace hone::infer
