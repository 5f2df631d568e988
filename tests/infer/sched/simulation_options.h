// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/infer/sched/simulation.h"

namespace hone::test {

struct Scenario {
  std::string name;
  infer::SchedulerOptions options;
  bool is_tight = false;  // so little memory that sequences are preempted
};

// Few different keys, which depend on neither tenant nor parent.
inline infer::PrefixKey weak_key(const infer::PrefixSecret& secret, const infer::PrefixKey&,
                                 std::span<const TokenId> ids) {
  return {infer::extend_key(secret, {}, ids)[0] % 64, 0};
}

inline std::vector<Scenario> scenarios() {
  const infer::LayerGroup all{.layers = 2, .kv_heads = 1, .key_dim = 4, .value_dim = 4};
  infer::LayerGroup window = all;
  window.layers = 3;
  window.window = 40;
  infer::LayerGroup narrow = all;
  narrow.window = 3;
  const Index block = infer::kv_block_bytes(all);
  infer::SchedulerOptions base{.groups = {all}, .kv_bytes = 200 * block, .context = 450};
  base.prefix_secret = {1, 2};
  base.max_running = 6;
  base.max_queue = 20;
  base.prefill_chunk = 128;
  base.max_rows = 160;
  base.slowdown = 1.5;
  base.least_target_seconds = 0.01;
  base.ageing_seconds = 0.5;
  base.stall_seconds = 1;

  std::vector<Scenario> list{{.name = "ample memory", .options = base}};
  list.push_back({.name = "tight memory", .options = base, .is_tight = true});
  list.back().options.kv_bytes = 24 * block;
  list.push_back({.name = "full and windowed layers", .options = base, .is_tight = true});
  list.back().options.groups = {all, window};
  list.back().options.kv_bytes = 50 * block;
  list.push_back({.name = "windows only", .options = base, .is_tight = true});
  list.back().options.groups = {window, narrow};
  list.back().options.kv_bytes = 60 * block;
  list.push_back({.name = "colliding keys", .options = base, .is_tight = true});
  list.back().options.kv_bytes = 24 * block;
  list.back().options.extend_key = weak_key;
  return list;
}

// A simulation that exercises nothing proves nothing.
inline void expect_coverage(const Simulation& simulation, const Scenario& scenario) {
  const Coverage& seen = simulation.coverage();
  for (const auto cause :
       {infer::EndCause::Finished, infer::EndCause::Cancelled, infer::EndCause::DeadlinePassed,
        infer::EndCause::Stalled, infer::EndCause::Failed}) {
    EXPECT_TRUE(seen.ends.contains(cause)) << static_cast<int>(cause);
  }
  for (const auto refusal :
       {infer::Refusal::QueueFull, infer::Refusal::PromptTooLong, infer::Refusal::DeadlinePassed}) {
    EXPECT_TRUE(seen.refusals.contains(refusal)) << name_of(refusal);
  }
  EXPECT_GT(seen.copies, 0);
  EXPECT_GT(seen.accepted_drafts, 0);
  EXPECT_GT(seen.rejected_drafts, 0);
  EXPECT_GT(seen.mixed_steps, 0);
  EXPECT_GT(seen.ordered_starts, 0);
  const infer::SchedulerCounters counters = simulation.scheduler().counters();
  EXPECT_GT(counters.finished, 0);
  EXPECT_GT(counters.cached_tokens, 0);
  EXPECT_TRUE(!scenario.is_tight || counters.preemptions > 0);
}

}  // namespace hone::test
