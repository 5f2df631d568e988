// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hone::server {

// Threads that run jobs in their order.
class Workers {
 public:
  explicit Workers(int threads);
  ~Workers();  // end()
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  void post(std::function<void()> job);
  // Runs what waits, and ends the threads. What is posted later never runs.
  void end();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hone::server
