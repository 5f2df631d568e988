// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "hone/train/task/vision/image_batches.h"

namespace hone::task {

// Prepares batches ahead in its own threads. After take(first, count), the next batches of `count`
// samples are prepared, up to `ahead` finished or unfinished ones at a time. The result of take()
// depends only on its arguments.
class Prefetcher {
 public:
  using Make = std::function<ImageValues(Index first, Index count)>;

  // Without workers, take() makes the batch itself. Does not prepare samples from `end` on (-1: no
  // end).
  Prefetcher(Make make, Index workers, Index ahead, Index end = -1);
  // Prepares batches of `batches`, which must outlive this object.
  Prefetcher(const ImageBatches& batches, Index workers, Index ahead, Index end = -1)
      : Prefetcher([&batches](Index first, Index count) { return batches.make(first, count); },
                   workers, ahead, end) {}
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  ~Prefetcher();

  // Rethrows the exception of `make` for this batch.
  ImageValues take(Index first, Index count);

 private:
  struct Slot {
    Index first = 0, count = 0;
    bool started = false, done = false;
    ImageValues values;
    std::exception_ptr failure;
  };

  void work();
  void schedule(Index first, Index count);

  Make make_;
  Index ahead_, end_;
  std::mutex mutex_;
  std::condition_variable wanted_, ready_;
  std::deque<std::shared_ptr<Slot>> slots_;  // in the order in which they will be taken
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hone::task
