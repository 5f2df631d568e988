// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/thread/executor.h"

namespace hone::test {

// Acts like a pool whose workers are preempted in every chunk: computes each chunk of a published
// region once more as late as the contract allows, when wait_left() is called or, if the call waits
// for stragglers, after all commits. Expects the same bytes each time, so that an input that was
// changed too early fails the test.
class StragglingExecutor final : public Executor {
 public:
  ~StragglingExecutor() override {
    EXPECT_TRUE(pending_.empty()) << "nobody waited for " << pending_.size() << " regions";
  }

  int workers() const override { return 3; }

  void parallel_for(Index n, Index grain, RangeBody body) override {
    serial_executor().parallel_for(n, grain, body);
  }

  PublishTicket parallel_publish(PublishWork work) override {
    Region region{.work = std::move(work), .slots = {}};
    for (Index chunk = 0; chunk < region.work.chunks; ++chunk) {
      region.slots.push_back(compute(region.work, chunk));
      region.work.commit(chunk, region.slots.back().data());
    }
    recomputed_ += region.work.chunks;
    if (region.work.wait_for_stragglers) {
      compute_again(region);
      return {};
    }
    const PublishTicket ticket{++generation_};
    pending_.emplace(generation_, std::move(region));
    return ticket;
  }

  void wait_left(PublishTicket ticket) override {
    const auto found = pending_.find(ticket.generation);
    if (found == pending_.end()) return;
    compute_again(found->second);
    pending_.erase(found);
  }

  // The number of chunks that were computed twice, or will be.
  Index recomputed() const { return recomputed_; }

 private:
  struct Region {
    PublishWork work;
    std::vector<Buffer> slots;
  };

  static Buffer compute(const PublishWork& work, Index chunk) {
    Buffer slot(work.slot_bytes);
    std::memset(slot.data(), 0, static_cast<std::size_t>(work.slot_bytes));
    work.compute(chunk, slot.data());
    return slot;
  }
  static void compute_again(const Region& region) {
    Index changed = 0;
    for (Index chunk = 0; chunk < region.work.chunks; ++chunk) {
      const Buffer slot = compute(region.work, chunk);
      const Buffer& first = region.slots[static_cast<std::size_t>(chunk)];
      changed +=
          std::memcmp(slot.data(), first.data(), static_cast<std::size_t>(slot.bytes())) != 0;
    }
    EXPECT_EQ(changed, 0) << "chunks of " << region.work.chunks
                          << " found other inputs than the first time";
  }

  std::map<std::uint64_t, Region> pending_;
  std::uint64_t generation_ = 0;
  Index recomputed_ = 0;
};

}  // namespace hone::test
