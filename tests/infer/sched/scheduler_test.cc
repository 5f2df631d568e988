// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sched/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <numeric>

#include "hone/core/error.h"

namespace hone::infer {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;
constexpr LayerGroup kLayers{.layers = 1, .kv_heads = 1, .key_dim = 8, .value_dim = 8};
constexpr Index kBlockBytes = 1024;

SchedulerOptions options_of(Index blocks) {
  return {.groups = {kLayers}, .kv_bytes = blocks * kBlockBytes, .context = 4096};
}

std::vector<TokenId> text(Index length, TokenId first = 0) {
  std::vector<TokenId> ids(static_cast<std::size_t>(length));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

Submission generate(RequestId id, std::vector<TokenId> tokens, Index max_tokens = 100) {
  Submission submission{.id = id, .tokens = std::move(tokens), .max_tokens = max_tokens};
  submission.first_output = static_cast<Index>(submission.tokens.size()) - 1;
  submission.room = 1000;
  return submission;
}

// Every row succeeds; sampled tokens are 7, drafts of 7 are accepted.
StepResult succeed(const StepPlan& plan, double seconds = 0.01) {
  StepResult result{.seconds = seconds};
  for (const PlannedSequence& planned : plan.sequences) {
    SequenceResult one{.id = planned.id};
    const auto rows = static_cast<Index>(planned.tokens.size()) - planned.drafts;
    // The last token of the text is among the rows exactly if the last row wants its output.
    const bool samples = planned.kind == RequestKind::Generate && planned.first_output < rows;
    if (samples) {
      one.tokens.push_back(7);
      for (Index i = rows; i < std::ssize(planned.tokens); ++i) {
        if (planned.tokens[static_cast<std::size_t>(i)] != 7) break;
        one.tokens.push_back(7);
      }
    }
    result.sequences.push_back(std::move(one));
  }
  return result;
}

StepPlan step(Scheduler& scheduler, TimeNs now = 0, double seconds = 0.01) {
  StepPlan plan = scheduler.plan(now);
  if (!plan.empty()) scheduler.apply(succeed(plan, seconds));
  scheduler.audit();
  return plan;
}

const PlannedSequence* row_of(const StepPlan& plan, RequestId id) {
  const auto found = std::ranges::find(plan.sequences, id, &PlannedSequence::id);
  return found == plan.sequences.end() ? nullptr : &*found;
}

void expect_counters_add_up(const Scheduler& scheduler) {
  const SchedulerCounters c = scheduler.counters();
  EXPECT_EQ(c.submitted, c.finished + c.rejected + c.cancelled + c.failed + c.running + c.waiting);
}

TEST(Scheduler, prefills_in_chunks_then_decodes_one_token_a_step) {
  Scheduler scheduler(options_of(100));
  EXPECT_FALSE(scheduler.submit(generate(1, text(600), 2), 0));
  StepPlan plan = step(scheduler);
  ASSERT_EQ(plan.sequences.size(), 1u);
  EXPECT_EQ(plan.sequences[0].tokens, text(512));
  EXPECT_EQ(plan.sequences[0].first_output, 512);  // none yet
  plan = step(scheduler);
  EXPECT_EQ(plan.sequences[0].first_position, 512);
  EXPECT_EQ(plan.sequences[0].tokens, text(88, 512));
  EXPECT_EQ(plan.sequences[0].first_output, 87);
  plan = step(scheduler);
  EXPECT_EQ(plan.shape.decode_rows, 1);
  EXPECT_EQ(plan.sequences[0].first_position, 600);
  EXPECT_EQ(plan.sequences[0].tokens, std::vector<TokenId>{7});
  const auto ended = scheduler.take_ended();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].cause, EndCause::Finished);
  EXPECT_TRUE(step(scheduler).empty());
  expect_counters_add_up(scheduler);
}

TEST(Scheduler, prompts_of_different_lengths_share_a_step) {
  Scheduler scheduler(options_of(200));
  for (RequestId id = 1; id <= 16; ++id) {
    scheduler.submit(generate(id, text(static_cast<Index>(id) + 2, static_cast<TokenId>(id))), 0);
  }
  EXPECT_EQ(step(scheduler).sequences.size(), 16u);
  EXPECT_EQ(step(scheduler).shape.decode_rows, 16);
}

Submission of_tenant(std::uint64_t salt, Submission submission) {
  submission.salt = salt;
  return submission;
}
Submission of_class(Priority priority, Submission submission) {
  submission.priority = priority;
  return submission;
}

// The steps until the text has its first token.
int steps_until_decoding(Scheduler& scheduler, RequestId id, int most = 200) {
  for (int i = 1; i <= most; ++i) {
    const StepPlan plan = step(scheduler);
    const PlannedSequence* row = row_of(plan, id);
    if (row != nullptr && row->outputs() > 0) return i;
  }
  return most + 1;
}

TEST(Scheduler, a_long_prompt_does_not_hold_up_short_ones) {
  Scheduler scheduler(options_of(400));
  scheduler.submit(generate(1, text(4000)), 0);
  step(scheduler);
  for (RequestId id = 2; id <= 5; ++id) {
    scheduler.submit(generate(id, text(20, static_cast<TokenId>(1000 * id))), 0);
  }
  for (RequestId id = 2; id <= 5; ++id) EXPECT_LE(steps_until_decoding(scheduler, id), 2) << id;
}

TEST(Scheduler, a_long_prompt_keeps_most_of_the_tokens) {
  Scheduler scheduler(options_of(600));
  scheduler.submit(generate(1, text(4000)), 0);
  scheduler.submit(generate(2, text(4000, 5000)), 0);
  step(scheduler);
  const StepPlan plan = step(scheduler);
  ASSERT_NE(row_of(plan, 1), nullptr);
  ASSERT_NE(row_of(plan, 2), nullptr);
  EXPECT_EQ(row_of(plan, 1)->tokens.size(), 384U);
  EXPECT_EQ(row_of(plan, 2)->tokens.size(), 128U);
}

TEST(Scheduler, a_better_class_goes_before_a_running_prompt) {
  Scheduler scheduler(options_of(400));
  scheduler.submit(of_class(Priority::Low, generate(1, text(4000))), 0);
  step(scheduler);
  scheduler.submit(of_class(Priority::High, generate(2, text(500, 5000))), 0);
  const StepPlan plan = step(scheduler);
  ASSERT_NE(row_of(plan, 2), nullptr);
  EXPECT_EQ(row_of(plan, 2)->tokens.size(), 500U);
}

TEST(Scheduler, a_better_class_takes_a_place) {
  SchedulerOptions options = options_of(400);
  options.max_running = 2;
  Scheduler scheduler(options);
  scheduler.submit(of_class(Priority::Low, generate(1, text(20))), 0);
  scheduler.submit(of_class(Priority::Normal, generate(2, text(20, 100))), 0);
  step(scheduler);
  scheduler.submit(of_class(Priority::High, generate(3, text(20, 200))), 0);
  const StepPlan plan = step(scheduler);
  EXPECT_NE(row_of(plan, 3), nullptr);
  EXPECT_NE(row_of(plan, 2), nullptr);
  EXPECT_EQ(row_of(plan, 1), nullptr) << "the worst class waits";
  EXPECT_EQ(scheduler.counters().preemptions, 1);
  scheduler.submit(of_class(Priority::Normal, generate(4, text(20, 300))), 0);
  EXPECT_EQ(row_of(step(scheduler), 4), nullptr) << "an equal class does not preempt";
}

TEST(Scheduler, tenants_take_turns) {
  SchedulerOptions options = options_of(400);
  options.max_running = 1;
  Scheduler scheduler(options);
  for (RequestId id = 1; id <= 6; ++id) {
    scheduler.submit(of_tenant(1, generate(id, text(40, static_cast<TokenId>(100 * id)), 2)), 0);
  }
  scheduler.submit(of_tenant(2, generate(7, text(40, 9000), 2)), 0);
  std::vector<RequestId> order;
  for (int i = 0; i < 40 && order.size() < 7; ++i) {
    step(scheduler);
    for (const Ended& ended : scheduler.take_ended()) order.push_back(ended.id);
  }
  ASSERT_EQ(order.size(), 7U);
  EXPECT_LE(std::ranges::find(order, RequestId{7}) - order.begin(), 1);
}

TEST(Scheduler, a_tenant_with_all_places_gives_some_to_another) {
  SchedulerOptions options = options_of(400);
  options.max_running = 4;
  Scheduler scheduler(options);
  for (RequestId id = 1; id <= 4; ++id) {
    scheduler.submit(of_tenant(1, generate(id, text(20, static_cast<TokenId>(100 * id)), 1000)), 0);
  }
  step(scheduler);
  for (RequestId id = 5; id <= 7; ++id) {
    scheduler.submit(of_tenant(2, generate(id, text(20, static_cast<TokenId>(1000 * id)), 1000)),
                     0);
  }
  StepPlan plan;
  for (int i = 0; i < 5; ++i) plan = step(scheduler);
  const auto running = [&](RequestId first, RequestId last) {
    return std::ranges::count_if(plan.sequences, [&](const PlannedSequence& one) {
      return one.id >= first && one.id <= last;
    });
  };
  EXPECT_EQ(running(1, 4), 2);
  EXPECT_EQ(running(5, 7), 2);
  EXPECT_EQ(scheduler.counters().preemptions, 2);
}

TEST(Scheduler, ages_only_while_a_request_waits) {
  SchedulerOptions options = options_of(400);
  options.max_running = 1;
  Scheduler scheduler(options);
  scheduler.submit(of_class(Priority::Low, generate(1, text(20), 1000)), 0);
  step(scheduler, 0);
  step(scheduler, 100 * kSecond);
  scheduler.submit(of_class(Priority::High, generate(2, text(20, 100))), 100 * kSecond);
  EXPECT_NE(row_of(step(scheduler, 100 * kSecond), 2), nullptr);
}

TEST(Scheduler, limits_the_time_of_a_step_of_prompts) {
  SchedulerOptions options = options_of(400);
  options.prefill_seconds = 0.1;
  Scheduler scheduler(options);
  scheduler.submit(generate(1, text(4000)), 0);
  Index last = 0;
  for (int i = 0; i < 6; ++i) {  // a token takes 0.5 ms
    const StepPlan plan = scheduler.plan(0);
    last = plan.shape.prefill_tokens;
    scheduler.apply(succeed(plan, 5e-4 * static_cast<double>(last)));
  }
  EXPECT_GE(last, 128);
  EXPECT_LE(last, 208);
}

TEST(Scheduler, refusals_have_names_and_are_counted) {
  SchedulerOptions options = options_of(20);
  options.max_queue = 1;
  Scheduler scheduler(options);
  EXPECT_EQ(scheduler.submit(generate(1, text(5000)), 0), Refusal::PromptTooLong);
  EXPECT_EQ(scheduler.submit(generate(2, text(scheduler.max_length())), 0), Refusal::PromptTooLong);
  Submission late = generate(3, text(4));
  late.deadline = 5;
  EXPECT_EQ(scheduler.submit(late, 5), Refusal::DeadlinePassed);
  EXPECT_FALSE(scheduler.submit(generate(4, text(scheduler.max_length() - 1)), 0));
  EXPECT_EQ(scheduler.submit(generate(5, text(4)), 0), Refusal::QueueFull);
  EXPECT_EQ(name_of(Refusal::QueueFull), "queue_full");
  EXPECT_EQ(name_of(Refusal::PromptTooLong), "prompt_too_long");
  EXPECT_EQ(name_of(Refusal::DeadlinePassed), "deadline_passed");
  EXPECT_EQ(scheduler.counters().rejected, 4);
  expect_counters_add_up(scheduler);
}

TEST(Scheduler, invalid_requests_are_errors) {
  Scheduler scheduler(options_of(20));
  EXPECT_THROW(scheduler.submit(generate(1, {}), 0), Error);
  EXPECT_THROW(scheduler.submit(generate(1, text(4), 0), 0), Error);
  Submission bad = generate(1, text(4));
  bad.first_output = 4;
  EXPECT_THROW(scheduler.submit(bad, 0), Error);
  bad = generate(1, text(4));
  bad.room = 1;
  EXPECT_THROW(scheduler.submit(bad, 0), Error);
  bad = generate(1, text(4));
  bad.kind = RequestKind::Read;
  EXPECT_THROW(scheduler.submit(bad, 0), Error);
  scheduler.submit(generate(1, text(4)), 0);
  EXPECT_THROW(scheduler.submit(generate(1, text(4)), 0), Error);
  EXPECT_EQ(scheduler.counters().submitted, 1);
}

TEST(Scheduler, a_request_as_long_as_the_memory_allows_runs_to_its_end) {
  Scheduler scheduler(options_of(12));
  const Index longest = scheduler.max_length();
  scheduler.submit(generate(1, text(longest - 40), 1000), 0);
  Index tokens = 0;
  while (!step(scheduler).empty()) ++tokens;
  EXPECT_EQ(scheduler.take_ended().at(0).cause, EndCause::Finished);
  EXPECT_EQ(tokens, 40);  // one prefill step and 39 decode steps
  EXPECT_EQ(scheduler.counters().preemptions, 0);
}

TEST(Scheduler, a_text_that_is_read_gives_every_output_once_and_takes_none_from_the_cache) {
  Scheduler scheduler(options_of(100));
  scheduler.submit(generate(1, text(100), 1), 0);
  while (!step(scheduler).empty()) {
  }
  scheduler.submit({.id = 2, .kind = RequestKind::Read, .tokens = text(100)}, 0);
  const StepPlan plan = step(scheduler);
  EXPECT_EQ(plan.sequences[0].first_position, 0);
  EXPECT_EQ(plan.sequences[0].first_output, 0);
  EXPECT_EQ(plan.sequences[0].tokens.size(), 100u);
  // Only the last hidden state is wanted: three whole blocks come from the cache.
  scheduler.submit({.id = 3, .kind = RequestKind::Read, .tokens = text(100), .first_output = 99},
                   0);
  const StepPlan last = step(scheduler);
  EXPECT_EQ(last.sequences[0].first_position, 96);
  EXPECT_EQ(last.sequences[0].first_output, 3);
  EXPECT_EQ(scheduler.counters().finished, 3);
}

TEST(Scheduler, the_last_prompt_token_is_recomputed) {
  Scheduler scheduler(options_of(100));
  scheduler.submit(generate(1, text(64), 40), 0);
  step(scheduler);
  scheduler.submit(generate(2, text(64), 40), 0);  // while the first one runs
  const StepPlan plan = step(scheduler);
  EXPECT_EQ(row_of(plan, 2)->first_position, 32);
  EXPECT_EQ(row_of(plan, 2)->blocks[0][0], row_of(plan, 1)->blocks[0][0]);
  // What the second computed twice is given up for the first one's block.
  const StepPlan next = step(scheduler);
  EXPECT_EQ(row_of(next, 2)->blocks[0][1], row_of(next, 1)->blocks[0][1]);
}

TEST(Scheduler, tenants_share_no_block) {
  Scheduler scheduler(options_of(100));
  scheduler.submit(generate(1, text(64), 40), 0);
  step(scheduler);
  Submission other = generate(2, text(64), 40);
  other.salt = 1;
  scheduler.submit(other, 0);
  EXPECT_EQ(row_of(step(scheduler), 2)->first_position, 0);
}

// 32 requests with a common prefix of 1024 tokens prefill it once, although all arrive at once.
TEST(Scheduler, a_common_prefix_is_computed_once) {
  for (const double target : {10.0, 1e-6}) {
    SchedulerOptions options = options_of(1000);
    options.least_target_seconds = target;
    options.max_running = 32;
    Scheduler scheduler(options);
    constexpr Index kTail = 20;
    for (RequestId id = 1; id <= 32; ++id) {
      std::vector<TokenId> ids = text(1024);
      const auto tail = text(kTail, 5000 + 100 * static_cast<TokenId>(id));
      ids.insert(ids.end(), tail.begin(), tail.end());
      scheduler.submit(generate(id, ids, 50), 0);
    }
    Index prefilled = 0;
    for (StepPlan plan = step(scheduler); !plan.empty(); plan = step(scheduler)) {
      prefilled += plan.shape.prefill_tokens;
    }
    EXPECT_LE(prefilled, 1024 + 32 * (kTail + 32));
    EXPECT_EQ(scheduler.counters().finished, 32);
  }
}

TEST(Scheduler, chunks_shrink_to_the_target_while_sequences_decode) {
  SchedulerOptions options = options_of(400);
  options.least_target_seconds = 0.1;
  Scheduler scheduler(options);
  scheduler.submit(generate(1, text(16), 1000), 0);
  step(scheduler, 0, 0.016);
  scheduler.submit(generate(2, text(3900, 100)), 0);
  Index chunks = 0;
  for (int i = 0; i < 40; ++i) {
    const StepPlan plan = scheduler.plan(0);
    const Index tokens = plan.shape.prefill_tokens;
    if (tokens > 0 && i > 20) {
      EXPECT_EQ(tokens % 16, 0);
      EXPECT_GE(tokens, 64);
      EXPECT_LE(tokens, 96);  // 1 ms per row
      ++chunks;
    }
    scheduler.apply(succeed(plan, 1e-3 * static_cast<double>(1 + tokens)));
  }
  EXPECT_GT(chunks, 10);
}

// A decode takes 40 ms, and each token of a prompt 1 ms more: with a slowdown of 3, steps of 120
// ms.
TEST(Scheduler, prefill_slows_decodes_by_no_more_than_the_factor) {
  SchedulerOptions options = options_of(400);
  options.slowdown = 3;
  options.least_target_seconds = 0;
  Scheduler scheduler(options);
  const auto duration = [](const StepPlan& plan) {
    return 0.04 + 1e-3 * static_cast<double>(plan.shape.prefill_tokens);
  };
  scheduler.submit(generate(1, text(16), 1000), 0);
  for (int i = 0; i < 40; ++i) {
    const StepPlan plan = scheduler.plan(0);
    scheduler.apply(succeed(plan, duration(plan)));
  }
  scheduler.submit(generate(2, text(3900, 100)), 0);
  Index chunks = 0;
  for (int i = 0; i < 40; ++i) {
    const StepPlan plan = scheduler.plan(0);
    if (plan.shape.prefill_tokens > 0 && i > 10) {
      EXPECT_LE(duration(plan), 3 * 0.04 * 1.05);
      EXPECT_GE(duration(plan), 3 * 0.04 * 0.8);
      ++chunks;
    }
    scheduler.apply(succeed(plan, duration(plan)));
  }
  EXPECT_GT(chunks, 20);
}

TEST(Scheduler, prefill_advances_even_if_decodes_alone_miss_the_target) {
  SchedulerOptions options = options_of(400);
  options.slowdown = 1;
  options.least_target_seconds = 0;
  Scheduler scheduler(options);
  scheduler.submit(generate(1, text(16), 1000), 0);
  step(scheduler);
  scheduler.submit(generate(2, text(160, 100)), 0);
  for (int i = 0; i < 160; ++i) EXPECT_EQ(row_of(step(scheduler), 2)->tokens.size(), 1u);
  EXPECT_EQ(step(scheduler).shape.decode_rows, 2);
}

TEST(Scheduler, drafts_are_verified_and_rejected_ones_leave_no_trace) {
  Scheduler scheduler(options_of(100));
  scheduler.submit(generate(1, text(30)), 0);
  step(scheduler);
  scheduler.set_drafts(1, {7, 7, 8, 7});
  StepPlan plan = step(scheduler);  // 7 at position 30 is known; two drafts are right
  EXPECT_EQ(plan.sequences[0].tokens, (std::vector<TokenId>{7, 7, 7, 8, 7}));
  EXPECT_EQ(plan.sequences[0].drafts, 4);
  EXPECT_EQ(plan.sequences[0].first_output, 0);
  plan = step(scheduler);
  EXPECT_EQ(plan.sequences[0].first_position, 33);
  EXPECT_EQ(plan.sequences[0].tokens, std::vector<TokenId>{7});
}

TEST(Scheduler, drafts_respect_the_limit_and_the_ring) {
  Scheduler scheduler(options_of(100));
  scheduler.submit(generate(1, text(30), 4), 0);
  step(scheduler);
  scheduler.set_drafts(1, std::vector<TokenId>(10, 7));
  scheduler.set_room(1, 3);
  StepPlan plan = scheduler.plan(0);
  EXPECT_EQ(plan.sequences[0].drafts, 1);  // two events, and a slot for the end
  scheduler.apply({});                     // abandoned: nothing changed
  scheduler.set_room(1, 100);
  scheduler.set_drafts(1, std::vector<TokenId>(10, 7));
  plan = step(scheduler);
  EXPECT_EQ(plan.sequences[0].drafts, 2);  // three tokens are left
  EXPECT_EQ(scheduler.take_ended().at(0).cause, EndCause::Finished);
}

TEST(Scheduler, wrong_results_are_errors) {
  Scheduler scheduler(options_of(100));
  EXPECT_THROW(scheduler.apply({}), Error);
  scheduler.submit(generate(1, text(4)), 0);
  scheduler.plan(0);
  EXPECT_THROW(scheduler.plan(0), Error);
  EXPECT_THROW(scheduler.apply({.sequences = {{.id = 1}}}), Error);  // no token
}

TEST(Scheduler, cancel_works_in_every_state) {
  SchedulerOptions options = options_of(100);
  options.max_running = 2;
  Scheduler scheduler(options);
  for (RequestId id = 1; id <= 4; ++id) {
    scheduler.submit(generate(id, text(40, 100 * static_cast<TokenId>(id))), 0);
  }
  scheduler.cancel(4);  // waiting
  scheduler.cancel(4);
  scheduler.cancel(99);
  EXPECT_EQ(scheduler.counters().waiting, 3);
  const StepPlan plan = scheduler.plan(0);
  scheduler.cancel(1);  // in the plan
  EXPECT_EQ(scheduler.counters().running, 2);
  scheduler.apply(succeed(plan));
  EXPECT_EQ(scheduler.counters().cancelled, 2);
  scheduler.set_room(2, 1);
  step(scheduler);
  EXPECT_EQ(scheduler.counters().parked, 1);
  scheduler.cancel(2);  // parked
  scheduler.cancel(3);  // running
  const auto ended = scheduler.take_ended();
  EXPECT_EQ(ended.size(), 4u);
  for (const Ended& one : ended) EXPECT_EQ(one.cause, EndCause::Cancelled);
  expect_counters_add_up(scheduler);
  scheduler.audit();
  EXPECT_EQ(scheduler.pool().used_bytes(), scheduler.pool().cached_bytes());
}

TEST(Scheduler, a_failing_request_ends_alone) {
  Scheduler scheduler(options_of(100));
  scheduler.submit(generate(1, text(40)), 0);
  scheduler.submit(generate(2, text(40, 500)), 0);
  const StepPlan plan = scheduler.plan(0);
  StepResult result = succeed(plan);
  result.sequences[0] = {.id = 1, .status = StepStatus::Failed};
  scheduler.apply(result);
  EXPECT_EQ(scheduler.take_ended().at(0).cause, EndCause::Failed);
  EXPECT_EQ(step(scheduler).sequences.size(), 1u);
  expect_counters_add_up(scheduler);
  // What it computed in the failed step is not in the cache.
  scheduler.submit(generate(3, text(40)), 0);
  EXPECT_EQ(row_of(step(scheduler), 3)->first_position, 0);
}

// A step in which one request fails and the others succeed.
void step_with_failure(Scheduler& scheduler, RequestId id) {
  const StepPlan plan = scheduler.plan(0);
  StepResult result = succeed(plan);
  for (SequenceResult& one : result.sequences) {
    if (one.id == id) one = {.id = id, .status = StepStatus::Failed};
  }
  scheduler.apply(result);
  scheduler.audit();
}

// The tokens of the text that the cache has for its prompt.
Index cached_of(Scheduler& scheduler, RequestId id, std::vector<TokenId> tokens) {
  scheduler.submit(generate(id, std::move(tokens)), 0);
  const StepPlan plan = step(scheduler);
  const PlannedSequence* row = row_of(plan, id);
  return row == nullptr ? -1 : row->first_position;
}

// What it computed before may be what it failed by.
TEST(Scheduler, a_failing_request_leaves_no_prefix_and_a_cancelled_one_does) {
  Scheduler scheduler(options_of(100));
  scheduler.submit(generate(1, text(100)), 0);
  for (int i = 0; i < 40; ++i) step(scheduler);  // four blocks are full
  EXPECT_EQ(scheduler.prefix_cache().size(), 4);
  step_with_failure(scheduler, 1);
  EXPECT_EQ(scheduler.take_ended().at(0).cause, EndCause::Failed);
  EXPECT_EQ(scheduler.prefix_cache().size(), 0);
  EXPECT_EQ(scheduler.pool().used_bytes(), 0);
  EXPECT_EQ(cached_of(scheduler, 2, text(100)), 0);
  scheduler.cancel(2);
  EXPECT_EQ(cached_of(scheduler, 3, text(100)), 96);
  EXPECT_EQ(scheduler.counters().evictions, 0);
}

TEST(Scheduler, a_failing_request_leaves_the_prefix_that_a_running_one_shares) {
  Scheduler scheduler(options_of(100));
  scheduler.submit(generate(1, text(100)), 0);
  step(scheduler);
  std::vector<TokenId> sharing = text(64);
  for (const TokenId id : text(20, 500)) sharing.push_back(id);
  EXPECT_EQ(cached_of(scheduler, 2, sharing), 64);
  step_with_failure(scheduler, 1);
  EXPECT_EQ(row_of(step(scheduler), 2)->tokens, std::vector<TokenId>{7}) << "it goes on";
  EXPECT_EQ(cached_of(scheduler, 3, text(100)), 64);
}

TEST(Scheduler, counts_the_prefixes_that_make_room_for_others) {
  Scheduler scheduler(options_of(12));
  scheduler.submit(generate(1, text(160), 1), 0);
  step(scheduler);
  EXPECT_EQ(scheduler.prefix_cache().size(), 5);
  EXPECT_EQ(scheduler.counters().evictions, 0);
  scheduler.submit(generate(2, text(250, 1000), 1), 0);
  step(scheduler);
  ASSERT_EQ(scheduler.counters().finished, 2);
  const Index evictions = scheduler.counters().evictions;
  EXPECT_GE(evictions, 1);
  EXPECT_EQ(evictions, 5 + 7 - scheduler.prefix_cache().size());
  scheduler.shrink_cache(0);
  EXPECT_EQ(scheduler.counters().evictions, 5 + 7);
}

TEST(Scheduler, deadlines_end_waiting_and_running_requests) {
  SchedulerOptions options = options_of(100);
  options.max_running = 1;
  Scheduler scheduler(options);
  for (RequestId id = 1; id <= 2; ++id) {
    Submission submission = generate(id, text(40));
    submission.deadline = static_cast<TimeNs>(id) * kSecond;
    scheduler.submit(submission, 0);
  }
  step(scheduler);
  EXPECT_EQ(scheduler.next_timer(), kSecond);
  step(scheduler, kSecond - 1);
  EXPECT_TRUE(scheduler.take_ended().empty());
  step(scheduler, kSecond);
  EXPECT_EQ(scheduler.take_ended().at(0).id, 1u);
  EXPECT_EQ(scheduler.next_timer(), 2 * kSecond);
  EXPECT_TRUE(step(scheduler, 2 * kSecond).empty());
  EXPECT_EQ(scheduler.take_ended().at(0).cause, EndCause::DeadlinePassed);
  EXPECT_FALSE(scheduler.next_timer().has_value());
}

TEST(Scheduler, a_slow_reader_parks_without_stopping_others_and_stalls_in_the_end) {
  SchedulerOptions options = options_of(100);
  options.max_running = 1;
  Scheduler scheduler(options);
  scheduler.submit(generate(1, text(40), 1000), 0);
  scheduler.submit(generate(2, text(40, 500), 1000), 0);
  step(scheduler);
  scheduler.set_room(1, 1);
  EXPECT_EQ(step(scheduler).sequences.at(0).id, 2u);  // its place is free, too
  EXPECT_EQ(scheduler.next_timer(), 30 * kSecond);
  scheduler.set_room(1, 2);
  EXPECT_EQ(step(scheduler).sequences.at(0).id, 2u);
  scheduler.cancel(2);
  EXPECT_EQ(step(scheduler).sequences.at(0).first_position, 40);  // where it was
  scheduler.set_room(1, 0);
  EXPECT_TRUE(step(scheduler, kSecond).empty());
  EXPECT_TRUE(step(scheduler, 31 * kSecond - 1).empty());
  EXPECT_EQ(scheduler.counters().parked, 1);
  step(scheduler, 31 * kSecond);
  EXPECT_EQ(scheduler.take_ended().back().cause, EndCause::Stalled);
}

TEST(Scheduler, parked_sequences_lose_their_blocks_first) {
  Scheduler scheduler(options_of(22));
  Submission important = generate(1, text(300));
  important.priority = Priority::High;
  scheduler.submit(important, 0);
  step(scheduler);
  scheduler.set_room(1, 0);
  Submission other = generate(2, text(400, 1000), 3);
  other.priority = Priority::Low;
  scheduler.submit(other, 0);
  EXPECT_NE(row_of(step(scheduler), 2), nullptr);
  EXPECT_EQ(scheduler.counters().preemptions, 1);
  EXPECT_EQ(scheduler.counters().parked, 1);
  while (!step(scheduler).empty()) {
  }
  scheduler.set_room(1, 10);
  EXPECT_EQ(row_of(step(scheduler), 1)->tokens.back(), 7);  // recomputed, its output included
}

TEST(Scheduler, preempts_the_latest_of_the_lowest_class) {
  SchedulerOptions options = options_of(17);
  Scheduler scheduler(options);
  const auto submit = [&](RequestId id, Priority priority) {
    Submission submission = generate(id, text(60, 1000 * static_cast<TokenId>(id)), 200);
    submission.priority = priority;
    ASSERT_FALSE(scheduler.submit(submission, 0));
    step(scheduler);
  };
  submit(1, Priority::Low);
  submit(2, Priority::Normal);
  submit(3, Priority::Low);
  submit(4, Priority::High);
  ASSERT_EQ(scheduler.counters().running, 4);
  StepPlan plan;
  while (scheduler.counters().preemptions == 0) plan = step(scheduler);
  EXPECT_EQ(row_of(plan, 3), nullptr);
  while (scheduler.counters().preemptions == 1) plan = step(scheduler);
  EXPECT_EQ(row_of(plan, 1), nullptr);
  while (!step(scheduler).empty()) {
  }
  EXPECT_EQ(scheduler.counters().finished, 4);
}

// A prompt that precedes all others runs out of blocks while those, helped by drafts, take them.
TEST(Scheduler, sequences_of_the_step_keep_their_blocks) {
  SchedulerOptions options = options_of(30);
  options.least_target_seconds = 0;
  Scheduler scheduler(options);
  for (RequestId id = 1; id <= 3; ++id) {
    Submission submission = generate(id, text(60, 1000 * static_cast<TokenId>(id)), 700);
    submission.priority = Priority::Low;
    scheduler.submit(submission, 0);
  }
  while (scheduler.counters().running < 3) step(scheduler);
  Submission urgent = generate(9, text(500), 2);
  urgent.priority = Priority::High;
  scheduler.submit(urgent, 0);
  while (scheduler.counters().finished < 4) {
    for (RequestId id = 1; id <= 3; ++id) scheduler.set_drafts(id, std::vector<TokenId>(15, 7));
    const StepPlan plan = scheduler.plan(0);
    ASSERT_FALSE(plan.empty());
    for (const PlannedSequence& planned : plan.sequences) {
      for (const BlockId id : planned.blocks[0]) EXPECT_GT(scheduler.pool().references(0, id), 0);
    }
    scheduler.audit();
    scheduler.apply(succeed(plan));
  }
  EXPECT_GT(scheduler.counters().preemptions, 0);
}

TEST(Scheduler, a_fork_shares_even_the_open_block) {
  Scheduler scheduler(options_of(100));
  scheduler.submit(generate(1, text(50)), 0);
  Submission fork = generate(2, text(50));
  fork.fork_of = 1;
  scheduler.submit(fork, 0);
  StepPlan plan = step(scheduler);
  EXPECT_EQ(row_of(plan, 2), nullptr);  // it waits for the prompt
  plan = step(scheduler);
  ASSERT_NE(row_of(plan, 2), nullptr);
  EXPECT_EQ(row_of(plan, 2)->first_position, 49);
  EXPECT_EQ(row_of(plan, 2)->blocks[0][0], row_of(plan, 1)->blocks[0][0]);
  EXPECT_NE(row_of(plan, 2)->blocks[0][1], row_of(plan, 1)->blocks[0][1]);
  ASSERT_EQ(plan.copies.size(), 1u);
  EXPECT_EQ(plan.copies[0].to, row_of(plan, 2)->blocks[0][1]);
}

TEST(Scheduler, a_fork_whose_parent_is_gone_runs_on_its_own) {
  Scheduler scheduler(options_of(100));
  scheduler.submit(generate(1, text(50)), 0);
  Submission fork = generate(2, text(50));
  fork.fork_of = 1;
  scheduler.submit(fork, 0);
  scheduler.cancel(1);
  EXPECT_EQ(row_of(step(scheduler), 2)->tokens.size(), 50u);
}

// An endless stream of urgent requests cannot keep a patient one waiting for longer than it takes
// to rise by two classes.
TEST(Scheduler, ageing_bounds_starvation) {
  SchedulerOptions options = options_of(100);
  options.max_running = 1;
  options.ageing_seconds = 10;
  Scheduler scheduler(options);
  Submission patient = generate(1, text(20), 1);
  patient.priority = Priority::Low;
  scheduler.submit(patient, 0);
  TimeNs now = 0;
  RequestId id = 1;
  for (bool is_started = false; !is_started; now += kSecond) {
    ASSERT_LE(now, 21 * kSecond);
    for (int i = 0; i < 2; ++i) {
      ++id;
      Submission urgent = generate(id, text(20, static_cast<TokenId>(100 * id)), 1);
      urgent.priority = Priority::High;
      scheduler.submit(urgent, now);
    }
    is_started = row_of(step(scheduler, now), 1) != nullptr;
    EXPECT_TRUE(is_started || now < 20 * kSecond);
  }
  EXPECT_GT(now, 20 * kSecond);  // but priorities count until then
}

// A key that cannot be computed, as when memory runs out within plan() or apply().
TEST(Scheduler, after_an_exception_every_request_ends_and_all_blocks_are_given_back) {
  static int keys_left = 0;
  keys_left = 1 << 30;
  SchedulerOptions options = options_of(40);
  options.extend_key = [](const PrefixSecret& secret, const PrefixKey& parent,
                          std::span<const TokenId> ids) {
    if (--keys_left == 0) throw std::bad_alloc();
    return extend_key(secret, parent, ids);
  };
  for (int at = 1; at < 200; ++at) {
    keys_left = 1 << 30;
    Scheduler scheduler(options);
    scheduler.submit(generate(100, text(100)), 0);
    step(scheduler);
    for (RequestId id = 1; id <= 6; ++id) {
      scheduler.submit(generate(id, text(70 + 3 * static_cast<Index>(id))), 0);
    }
    keys_left = at;
    bool has_failed = false;
    for (int i = 0; i < 8 && !has_failed; ++i) {
      try {
        step(scheduler);
      } catch (const std::bad_alloc&) {
        has_failed = true;
      }
    }
    if (!has_failed) {
      EXPECT_GT(at, 10);
      return;
    }
    scheduler.fail_all();
    EXPECT_EQ(scheduler.take_ended().size(), 7u);
    scheduler.audit();
    expect_counters_add_up(scheduler);
    EXPECT_EQ(scheduler.counters().failed, 7);
    scheduler.submit(generate(7, text(90)), 0);
    EXPECT_EQ(step(scheduler).sequences.size(), 1u) << "it goes on";
  }
  FAIL() << "never without an exception";
}

TEST(Scheduler, contradictory_options_are_refused) {
  const auto refused = [](auto change) {
    SchedulerOptions options = options_of(100);
    change(options);
    EXPECT_THROW(Scheduler{options}, Error);
  };
  refused([](SchedulerOptions& o) { o.context = 1; });
  refused([](SchedulerOptions& o) { o.max_running = 0; });
  refused([](SchedulerOptions& o) { o.max_queue = 0; });
  refused([](SchedulerOptions& o) { o.prefill_chunk = 100; });
  refused([](SchedulerOptions& o) { o.max_rows = 500; });
  refused([](SchedulerOptions& o) { o.kv_bytes = kBlockBytes; });
  refused([](SchedulerOptions& o) { o.groups.clear(); });
  refused([](SchedulerOptions& o) { o.slowdown = 0.9; });
  refused([](SchedulerOptions& o) { o.least_target_seconds = -1; });
  refused([](SchedulerOptions& o) { o.ageing_seconds = -1; });
  refused([](SchedulerOptions& o) { o.stall_seconds = 0; });
}

}  // namespace
}  // namespace hone::infer
