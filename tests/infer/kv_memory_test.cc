// SPDX-License-Identifier: Apache-2.0
// Memory of the KV cache goes back to the system: what exceeds a reserve when blocks are freed, and
// all that no running request needs when the system is short of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/philox.h"
#include "hone/infer/engine_loop.h"
#include "hone/model_io/write_model.h"
#include "tests/infer/engine_fixture.h"
#include "tests/infer/text_cache.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/resident_memory.h"
#include "tests/support/scripted_clock.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

using hone::test::kCountsMemory;
using hone::test::resident_bytes;
using test::CollectSink;

constexpr Index kMiB = Index{1} << 20;

// What the loop takes for the memory that the process could still use.
Index available = 0;

// A small model with a large cache: 12 layers and KV heads of 64 in f32, 2.25 MiB a block.
class KvMemory : public testing::Test {
 protected:
  KvMemory() {
    available = 4096 * kMiB;
    model_io::Architecture a = hone::test::tiny_architecture();
    a.layers = a.heads = a.kv_heads = 12;
    a.head_dim = a.rope.rotary_dims = 64;
    a.context = 2048;
    const hone::test::TinyModel model(a);
    model_io::write_hugging_face(folder_.path() / "model", model.source());
    file_ = test::open_bare(folder_.path() / "model");
    runner_ = std::make_unique<ModelRunner>(
        *file_, RunnerOptions{.kv = Dtype::Float32, .max_rows = loop_rows(options(0, 0))},
        serial_executor());
    open_loop(512 * kMiB, 0);
    answer({{1, 2, 3}}, 2);  // whatever is allocated once
    before_ = resident_bytes();
  }
  LoopOptions options(Index kv_bytes, Index mapped_bytes) const {
    return {.context = file_->architecture().context,
            .kv_bytes = kv_bytes,
            .max_sequences = 40,
            .prefill_chunk = 64,
            .available_bytes = [] { return available; },
            .mapped_bytes = mapped_bytes};
  }
  void open_loop(Index kv_bytes, Index mapped_bytes) {
    loop_.reset();
    loop_ = std::make_unique<EngineLoop>(options(kv_bytes, mapped_bytes), *runner_, nullptr,
                                         std::vector<TokenId>{}, serial_executor(), clock_);
  }
  std::vector<std::shared_ptr<CollectSink>> answer(const std::vector<std::vector<TokenId>>& prompts,
                                                   Index new_tokens) {
    std::vector<std::shared_ptr<CollectSink>> sinks;
    for (const auto& prompt : prompts) {
      sinks.push_back(std::make_shared<CollectSink>());
      loop_->queue().push({.request = test::greedy(prompt, new_tokens), .sink = sinks.back()});
    }
    while (!std::ranges::all_of(sinks, &CollectSink::is_finished)) {
      loop_->step();
      most_ = std::max(most_, loop_->queue().stats().kv_resident_bytes);
    }
    return sinks;
  }
  // Lets the engine look at the memory of the system some times.
  void idle(int looks) {
    for (int i = 0; i < looks; ++i) {
      clock_.advance(2);
      while (loop_->step()) {
      }
    }
  }
  EngineStats stats() const { return loop_->queue().stats(); }
  Index grown() const { return resident_bytes() - before_; }
  static std::vector<TokenId> prompt(std::uint64_t seed, Index length) {
    PhiloxStream random(seed);
    std::vector<TokenId> tokens;
    for (Index i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(random.below(48)));
    return tokens;
  }

  hone::test::TemporaryFolder folder_;
  std::unique_ptr<model_io::ModelFile> file_;
  hone::test::ScriptedClock clock_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<EngineLoop> loop_;
  Index before_ = 0, most_ = 0;
};

TEST_F(KvMemory, follows_a_request_and_not_the_limits) {
  answer({prompt(1, 5)}, 20);
  EXPECT_TRUE(!kCountsMemory || grown() < 16 * kMiB) << grown();
  EXPECT_LE(stats().kv_resident_bytes, 3 * 2359296);
}

TEST_F(KvMemory, of_freed_blocks_falls_to_the_reserve) {
  std::vector<std::vector<TokenId>> prompts;
  for (std::uint64_t i = 0; i < 40; ++i) prompts.push_back(prompt(i, 6));
  answer(prompts, 8);  // 40 blocks, none of which is full
  EXPECT_GE(most_, 90 * kMiB);
  idle(1);
  EXPECT_EQ(stats().kv_used_bytes, 0);
  EXPECT_LE(stats().kv_resident_bytes, 32 * kMiB);
  EXPECT_GT(stats().kv_resident_bytes, 24 * kMiB) << "the next requests find memory";
  EXPECT_TRUE(!kCountsMemory || grown() < 48 * kMiB) << grown();
}

TEST_F(KvMemory, of_prefixes_stays_until_the_system_needs_it) {
  const auto first = answer({prompt(1, 1000)}, 4)[0]->tokens;
  idle(3);
  EXPECT_GE(stats().kv_cached_bytes, 31 * 2359296);
  EXPECT_TRUE(!kCountsMemory || grown() >= 64 * kMiB) << grown();
  available = 10 * kMiB;
  idle(1);
  EXPECT_LE(stats().kv_cached_bytes, 16 * 2359296) << "half at a time";
  EXPECT_EQ(stats().kv_resident_bytes, stats().kv_used_bytes) << "no reserve";
  idle(6);
  EXPECT_EQ(stats().kv_resident_bytes, 0);
  EXPECT_TRUE(!kCountsMemory || grown() < 16 * kMiB) << grown();
  EXPECT_EQ(answer({prompt(1, 1000)}, 4)[0]->tokens, first) << "returned memory is used again";
}

TEST_F(KvMemory, of_a_second_request_with_the_prefix_is_that_of_its_own_blocks) {
  const auto submit = [&](TokenId tail, Index new_tokens) {
    auto tokens = prompt(1, 320);
    tokens.push_back(tail);
    auto sink = std::make_shared<CollectSink>();
    loop_->queue().push({.request = test::greedy(tokens, new_tokens), .sink = sink});
    while (sink->tokens.empty()) loop_->step();
    return sink;
  };
  const auto first = submit(5, 400);
  const Index alone = stats().kv_used_bytes;
  EXPECT_EQ(alone, 11 * 2359296);
  const auto second = submit(6, 20);
  EXPECT_EQ(stats().kv_used_bytes - alone, 2359296) << "of 11 blocks, 10 are shared";
  EXPECT_FALSE(first->is_finished());
}

TEST_F(KvMemory, of_running_requests_is_not_touched_when_memory_is_scarce) {
  std::vector<std::vector<TokenId>> prompts;
  for (std::uint64_t i = 0; i < 4; ++i) prompts.push_back(prompt(50 + i, 100));
  const auto expected = answer(prompts, 40);
  available = 0;
  std::vector<std::shared_ptr<CollectSink>> sinks;
  for (const auto& one : prompts) {
    sinks.push_back(std::make_shared<CollectSink>());
    loop_->queue().push({.request = test::greedy(one, 40), .sink = sinks.back()});
  }
  while (!std::ranges::all_of(sinks, &CollectSink::is_finished)) {
    clock_.advance(1);
    loop_->step();
  }
  for (std::size_t i = 0; i < sinks.size(); ++i) EXPECT_EQ(sinks[i]->tokens, expected[i]->tokens);
}

// The system calls the pages of mapped weights available, but every step reads them.
TEST_F(KvMemory, of_a_cache_without_a_size_is_half_of_what_mapped_weights_leave) {
  available = 512 * kMiB;
  const auto budget = [&](Index mapped_bytes) {
    open_loop(0, mapped_bytes);
    loop_->step();
    return stats().kv_budget_bytes;
  };
  EXPECT_EQ(budget(0), 256 * kMiB);
  EXPECT_EQ(budget(128 * kMiB), 192 * kMiB);
  EXPECT_EQ(budget(412 * kMiB), 50 * kMiB);
  // If they are all that there is, or more, a few blocks remain.
  for (const Index mapped : {512 * kMiB, 4096 * kMiB}) EXPECT_EQ(budget(mapped), 8 * 2359296);
  EXPECT_EQ(options(0, 4096 * kMiB).free_bytes(), 0);
}

TEST_F(KvMemory, that_mapped_weights_need_is_refused_to_the_cache) {
  available = 512 * kMiB;
  const auto said_to = [&](Index kv_bytes, Index mapped_bytes) {
    return hone::test::refusal([&] { open_loop(kv_bytes, mapped_bytes); });
  };
  EXPECT_EQ(said_to(300 * kMiB, 0), "");
  EXPECT_EQ(said_to(300 * kMiB, 212 * kMiB), "");
  const std::string said = said_to(300 * kMiB, 213 * kMiB);
  EXPECT_NE(said.find("KV cache"), std::string::npos) << said;
  EXPECT_NE(said.find("299"), std::string::npos) << said;
}

TEST_F(KvMemory, of_prefixes_goes_when_only_mapped_weights_could_make_room) {
  constexpr Index kMapped = 300 * kMiB;
  open_loop(128 * kMiB, kMapped);
  answer({prompt(1, 1000)}, 4);
  idle(3);
  const Index before = stats().kv_cached_bytes;
  EXPECT_GE(before, 31 * 2359296);
  EXPECT_EQ(stats().evictions, 0);
  available = kMapped + 17 * kMiB;  // above an eighth of the budget
  idle(1);
  EXPECT_EQ(stats().kv_cached_bytes, before);
  available = kMapped + 10 * kMiB;
  idle(1);
  EXPECT_LE(stats().kv_cached_bytes, 16 * 2359296);
  EXPECT_EQ(stats().evictions, (before - stats().kv_cached_bytes) / 2359296);
}

}  // namespace
}  // namespace hone::infer
