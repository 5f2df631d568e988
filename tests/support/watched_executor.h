// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>

#include "hone/core/thread/executor.h"

namespace hone::test {

// Runs serially, counts the regions and the chunks of its loops, and calls `before` and `after` at
// each region with the region's number, which starts at 1.
class WatchedExecutor final : public Executor {
 public:
  using Act = std::function<void(int region)>;

  explicit WatchedExecutor(Act first = {}, Act last = {})
      : before(std::move(first)), after(std::move(last)) {}

  int workers() const override { return 3; }
  void parallel_for(Index n, Index grain, RangeBody body) override {
    watch([&] {
      serial_executor().parallel_for(n, grain, [&](Index begin, Index end, int worker) {
        ++chunks;
        body(begin, end, worker);
      });
    });
  }
  PublishTicket parallel_publish(PublishWork work) override {
    PublishTicket ticket;
    watch([&] { ticket = serial_executor().parallel_publish(std::move(work)); });
    return ticket;
  }
  void wait_left(PublishTicket ticket) override { serial_executor().wait_left(ticket); }

  Act before, after;
  int regions = 0;
  Index chunks = 0;

 private:
  template <class Run>
  void watch(const Run& run) {
    const int region = ++regions;
    if (before) before(region);
    run();
    if (after) after(region);
  }
};

}  // namespace hone::test
