// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/prefetcher.h"

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

namespace hone::task {

Prefetcher::Prefetcher(Make make, Index workers, Index ahead, Index end)
    : make_(std::move(make)), ahead_(ahead), end_(end) {
  for (Index i = 0; i < workers; ++i) {
    threads_.emplace_back([this, i] {
      name_thread(concat("prefetcher ", i));
      work();
    });
  }
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wanted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Prefetcher::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    std::shared_ptr<Slot> slot;
    wanted_.wait(lock, [&] {
      const auto free =
          std::find_if(slots_.begin(), slots_.end(), [](const auto& one) { return !one->started; });
      if (free != slots_.end()) slot = *free;
      return stops_ || slot != nullptr;
    });
    if (stops_) return;
    slot->started = true;
    lock.unlock();
    ImageValues values;
    std::exception_ptr failure;
    try {
      values = make_(slot->first, slot->count);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    slot->values = std::move(values);
    slot->failure = failure;
    slot->done = true;
    ready_.notify_all();
  }
}

// Fills the queue after (first, count), its last batch.
void Prefetcher::schedule(Index first, Index count) {
  while (static_cast<Index>(slots_.size()) < ahead_) {
    first += count;
    if (end_ >= 0) count = std::min(count, end_ - first);
    if (count <= 0) return;
    auto slot = std::make_shared<Slot>();
    slot->first = first;
    slot->count = count;
    slots_.push_back(std::move(slot));
    wanted_.notify_one();
  }
}

ImageValues Prefetcher::take(Index first, Index count) {
  HONE_TRACE_ZONE("data", {"images", count});
  if (threads_.empty()) return make_(first, count);
  std::unique_lock lock(mutex_);
  const auto is_wanted = [&](const auto& slot) {
    return slot->first == first && slot->count == count;
  };
  if (slots_.empty() || !is_wanted(slots_.front())) {
    slots_.clear();  // a worker that is still making one finishes it, and the result is dropped
    auto slot = std::make_shared<Slot>();
    slot->first = first;
    slot->count = count;
    slots_.push_back(std::move(slot));
    wanted_.notify_one();
  }
  const std::shared_ptr<Slot> slot = slots_.front();
  ready_.wait(lock, [&] { return slot->done; });
  slots_.pop_front();
  const Slot& last = slots_.empty() ? *slot : *slots_.back();
  schedule(last.first, last.count);
  if (slot->failure) std::rethrow_exception(slot->failure);
  return std::move(slot->values);
}

}  // namespace hone::task
