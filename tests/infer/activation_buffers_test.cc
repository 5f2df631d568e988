// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/model/activation_buffers.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace hone::infer {
namespace {

// Three workers, of which some are in regions that have returned.
class ScriptedExecutor final : public Executor {
 public:
  int workers() const override { return 3; }
  void parallel_for(Index, Index, RangeBody) override {}
  PublishTicket parallel_publish(PublishWork) override { return {}; }
  void wait_left(PublishTicket ticket) override {
    if (!has_left(ticket)) waits_.push_back(ticket.generation);
    inside_.erase(ticket.generation);
  }
  bool has_left(PublishTicket ticket) const override {
    return !inside_.contains(ticket.generation);
  }

  PublishTicket straggle(std::uint64_t generation) {
    inside_.insert(generation);
    return {generation};
  }
  void leave(std::uint64_t generation) { inside_.erase(generation); }
  const std::vector<std::uint64_t>& waits() const { return waits_; }

 private:
  std::set<std::uint64_t> inside_;
  std::vector<std::uint64_t> waits_;
};

TEST(ActivationBuffers, the_first_free_one_is_reused) {
  ScriptedExecutor executor;
  ActivationBuffers<int> buffers(executor);
  const int* first = &buffers.next(1);
  buffers.set_reader({1});
  EXPECT_EQ(&buffers.next(1), first);
  buffers.set_reader(executor.straggle(2));
  const int* second = &buffers.next(1);
  EXPECT_NE(second, first);
  buffers.set_reader(executor.straggle(3));
  const int* third = &buffers.next(1);
  EXPECT_TRUE(third != first && third != second);
  for (std::uint64_t generation = 4; generation < 100; ++generation) {
    buffers.set_reader({generation});
    ASSERT_EQ(&buffers.next(1), third);
  }
  executor.leave(2);
  EXPECT_EQ(&buffers.next(1), first);
  EXPECT_TRUE(executor.waits().empty());
}

TEST(ActivationBuffers, two_serve_many_rows) {
  ScriptedExecutor executor;
  ActivationBuffers<int> buffers(executor);
  std::set<int*> given;
  for (std::uint64_t generation = 1; generation <= 6; ++generation) {
    given.insert(&buffers.next(17));
    buffers.set_reader(executor.straggle(generation));
  }
  EXPECT_EQ(given.size(), 2u);
  EXPECT_EQ(executor.waits(), (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_FALSE(given.contains(&buffers.next(16)));
}

TEST(ActivationBuffers, none_is_given_out_while_a_worker_reads_it) {
  ScriptedExecutor executor;
  {
    ActivationBuffers<int> buffers(executor);
    for (std::uint64_t generation = 1; generation <= 3; ++generation) {
      buffers.next(1);
      buffers.set_reader(executor.straggle(generation));
    }
    buffers.next(1);
    EXPECT_EQ(executor.waits(), std::vector<std::uint64_t>{1});
    buffers.set_reader(executor.straggle(4));
    buffers.wait_left();
    EXPECT_EQ(executor.waits().size(), 4u);
    buffers.next(1);
    buffers.set_reader(executor.straggle(5));
  }
  EXPECT_EQ(executor.waits().back(), 5u) << "The buffers went while a worker was reading one.";
}

}  // namespace
}  // namespace hone::infer
