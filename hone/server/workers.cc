// SPDX-License-Identifier: Apache-2.0
#include "hone/server/workers.h"

#include <exception>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"

namespace hone::server {

Workers::Workers(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

Workers::~Workers() { end(); }

void Workers::end() {
  {
    const std::scoped_lock lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Workers::post(std::function<void()> job) {
  {
    const std::scoped_lock lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void Workers::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    try {
      job();
    } catch (const std::exception& error) {
      log_error(concat("[serve] ", error.what()));
    }
    lock.lock();
  }
}

}  // namespace hone::server
