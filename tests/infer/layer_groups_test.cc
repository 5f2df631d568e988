// SPDX-License-Identifier: Apache-2.0
// Layers with windows have block tables of their own, whose blocks are given back once they have
// left the window: the texts are those of a cache that keeps everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "hone/core/philox.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/infer/engine_loop.h"
#include "hone/infer/kv_size.h"
#include "tests/infer/engine_fixture.h"
#include "tests/infer/text_cache.h"
#include "tests/infer/windowed_model.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

using test::CollectSink;
using Windows = std::vector<Index>;

constexpr Index kContext = 400;

// Mistral; Gemma, whose layers alternate; three kinds of layers; windows around a block.
const Windows kWindowsOfModels[] = {{8, 8}, {8, 0, 8, 0}, {40, 0, 8, 40}, {31, 32, 33, 1}};

std::string text_of(const Windows& windows) {
  std::string text;
  for (const Index window : windows) text += std::to_string(window) + " ";
  return text;
}

std::vector<TokenId> random_tokens(std::uint64_t seed, Index count) {
  PhiloxStream random(seed);
  std::vector<TokenId> tokens;
  for (Index i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(3 + random.below(45)));
  return tokens;
}

class LayerGroups : public testing::Test {
 protected:
  void open(const Windows& windows, Dtype kv = Dtype::Float16) {
    runner_.reset();
    file_ = test::windowed_model(folder_.path() / std::to_string(++models_), windows, kContext);
    runner_ = std::make_unique<ModelRunner>(*file_, RunnerOptions{.kv = kv, .max_rows = kRows},
                                            executor_);
  }
  // The greedy text by a cache for each group that keeps all positions.
  std::vector<TokenId> with_full_cache(std::vector<TokenId> text, Index new_tokens) {
    std::vector<test::TextCache> caches;
    for (std::size_t g = 0; g < runner_->kv_groups().size(); ++g) {
      caches.emplace_back(runner_->kv_layout(static_cast<Index>(g)), kContext);
    }
    std::vector<TokenId> out;
    Index done = 0;
    while (std::ssize(out) < new_tokens) {
      const Index rows = std::min<Index>(std::ssize(text) - done, 32);
      StepSequence sequence{.rows = rows, .first_position = done};
      for (const auto& cache : caches) sequence.tables.push_back(cache.table());
      runner_->forward(
          {.tokens = {text.begin() + done, text.begin() + done + rows}, .sequences = {sequence}});
      done += rows;
      if (done < std::ssize(text)) continue;
      const auto logits = runner_->logits(0, 1);
      const auto best = std::ranges::max_element(logits) - logits.begin();
      out.push_back(static_cast<TokenId>(best));
      text.push_back(out.back());
    }
    return out;
  }
  std::unique_ptr<EngineLoop> loop(LoopOptions options = {}) {
    options.context = kContext;
    options.max_sequences = std::min<Index>(options.max_sequences, 8);
    options.prefill_chunk = std::min<Index>(options.prefill_chunk, 64);
    return std::make_unique<EngineLoop>(options, *runner_, nullptr, std::vector<TokenId>{},
                                        executor_, steady_clock());
  }
  static std::shared_ptr<CollectSink> submit(EngineLoop& loop, std::vector<TokenId> prompt,
                                             Index new_tokens) {
    auto sink = std::make_shared<CollectSink>();
    loop.queue().push({.request = test::greedy(std::move(prompt), new_tokens), .sink = sink});
    return sink;
  }
  static void finish(EngineLoop& loop, const std::vector<std::shared_ptr<CollectSink>>& sinks) {
    while (!std::ranges::all_of(sinks, &CollectSink::is_finished)) loop.step();
  }

  static constexpr Index kRows = 96;
  hone::test::TemporaryFolder folder_;
  int models_ = 0;
  ThreadPool executor_{2};
  std::unique_ptr<test::WindowedFile> file_;
  std::unique_ptr<ModelRunner> runner_;
};

TEST_F(LayerGroups, gather_layers_of_equal_windows_in_order) {
  model_io::Architecture a = hone::test::tiny_architecture();
  a.layers = 5;
  a.context = 100;
  a.windows = {40, 0, 8, 40, 100};  // the last spans the context
  const KvPlan plan = plan_kv(a, Dtype::Int8);
  ASSERT_EQ(plan.groups.size(), 3u);
  EXPECT_EQ(plan.groups[0].window, 40);
  EXPECT_EQ(plan.groups[1].window, 0);
  EXPECT_EQ(plan.groups[2].window, 8);
  const KvPlan::Place places[] = {{0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1}};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(plan.places[i].group, places[i].group) << i;
    EXPECT_EQ(plan.places[i].layer, places[i].layer) << i;
  }
  a.windows.clear();
  ASSERT_EQ(plan_kv(a, Dtype::Float16).groups.size(), 1u);
  EXPECT_EQ(plan_kv(a, Dtype::Float16).groups[0].layers, 5);
}

TEST_F(LayerGroups, give_the_texts_of_a_full_cache) {
  for (const Windows& windows : kWindowsOfModels) {
    for (const Dtype kv : {Dtype::Float16, Dtype::Int8}) {
      open(windows, kv);
      for (const Index chunk : {5, 64}) {
        const auto engine = loop({.prefill_chunk = chunk});
        std::vector<std::shared_ptr<CollectSink>> sinks;
        for (const Index prompt : {1, 31, 100, 250}) {
          sinks.push_back(submit(*engine, random_tokens(1, prompt), 60));
        }
        finish(*engine, sinks);
        std::size_t i = 0;
        for (const Index prompt : {1, 31, 100, 250}) {
          EXPECT_EQ(sinks[i++]->tokens, with_full_cache(random_tokens(1, prompt), 60))
              << "windows " << text_of(windows) << "prompt " << prompt << " chunk " << chunk;
        }
      }
    }
  }
}

// Whoever sees only the window sees another text than whoever sees everything; otherwise the tests
// above would prove nothing.
TEST_F(LayerGroups, windows_change_the_text) {
  open({8, 0, 8, 0});
  const auto windowed = with_full_cache(random_tokens(1, 100), 40);
  open({0, 0, 0, 0});
  EXPECT_NE(with_full_cache(random_tokens(1, 100), 40), windowed);
}

TEST_F(LayerGroups, hold_the_blocks_of_their_window_only) {
  for (const Windows& windows : kWindowsOfModels) {
    open(windows);
    const auto groups = runner_->kv_groups();
    for (const Index chunk : {1, 64}) {
      const auto engine = loop({.prefill_chunk = chunk});
      for (const Index length : {2, 40, 65, 160, 390}) {
        const auto sink = submit(*engine, random_tokens(2, 1), length - 1);
        finish(*engine, {sink});
        Index most = 0, bytes = 0;
        for (const LayerGroup& group : groups) {
          const Index all = ceil_div(length, kBlockTokens);
          const Index held =
              group.window == 0 ? all : std::min(all, ceil_div(group.window, kBlockTokens) + 1);
          most += held;
          bytes += held * kv_block_bytes(group);
        }
        EXPECT_LE(sink->last().kv_blocks, most) << text_of(windows) << length;
        EXPECT_LE(sink->last().kv_bytes, bytes) << text_of(windows) << length;
      }
    }
  }
}

TEST_F(LayerGroups, share_prefixes_whose_window_is_cached) {
  for (const Windows& windows : kWindowsOfModels) {
    open(windows);
    const auto engine = loop();
    const auto shared = random_tokens(3, 200);
    std::vector<std::vector<TokenId>> prompts;
    for (std::uint64_t i = 0; i < 4; ++i) {
      prompts.push_back(shared);
      for (const TokenId id : random_tokens(10 + i, 9)) prompts.back().push_back(id);
    }
    finish(*engine, {submit(*engine, prompts[0], 8)});
    const Index before = engine->queue().stats().cached_tokens;
    EXPECT_EQ(before, 0);
    std::vector<std::shared_ptr<CollectSink>> sinks;
    for (const auto& prompt : prompts) sinks.push_back(submit(*engine, prompt, 30));
    finish(*engine, sinks);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(sinks[i]->tokens, with_full_cache(prompts[i], 30)) << text_of(windows) << i;
    }
    EXPECT_GE(engine->queue().stats().cached_tokens, 4 * 192) << text_of(windows);
  }
}

TEST_F(LayerGroups, preempt_and_evict_in_little_memory_and_change_no_text) {
  Index preemptions = 0;
  for (const Windows& windows : kWindowsOfModels) {
    open(windows);
    const Index text = kv_peak_bytes(runner_->kv_groups(), 260, 64 + 4 + kChunkTokens);
    const auto shared = random_tokens(4, 70);
    std::vector<std::vector<TokenId>> prompts;
    for (std::uint64_t i = 0; i < 6; ++i) {
      prompts.push_back(i % 2 == 0 ? shared : random_tokens(20 + i, 40));
      prompts.back().push_back(static_cast<TokenId>(5 + i));
    }
    const auto engine = loop({.kv_bytes = text + text / 2, .max_sequences = 4});
    for (int round = 0; round < 2; ++round) {
      std::vector<std::shared_ptr<CollectSink>> sinks;
      for (const auto& prompt : prompts) sinks.push_back(submit(*engine, prompt, 150));
      finish(*engine, sinks);
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(sinks[i]->tokens, with_full_cache(prompts[i], 150)) << text_of(windows) << i;
      }
    }
    preemptions += engine->queue().stats().preemptions;
  }
  EXPECT_GT(preemptions, 0);
}

TEST_F(LayerGroups, of_another_number_than_the_tables_are_refused) {
  open({8, 0});
  test::TextCache cache(runner_->kv_layout(), 64);
  StepSequence sequence{.rows = 1};
  for (const std::size_t tables : {0, 1, 3}) {
    sequence.tables.assign(tables, cache.table());
    EXPECT_NE(hone::test::error_of([&] {
                runner_->forward({.tokens = {1}, .sequences = {sequence}});
              }).find("block tables for 2 groups of layers"),
              std::string::npos);
  }
}

// The formula of the interface is what the pool hands out and the arena provides, at every length.
TEST_F(LayerGroups, take_the_bytes_of_the_formula_at_every_length) {
  model_io::Architecture a = hone::test::tiny_architecture();
  a.layers = 4;
  a.context = 300;
  for (const Windows& windows : {Windows{}, Windows{8, 0, 8, 0}, Windows{40, 100, 8, 40}}) {
    a.windows = windows;
    for (const KvDtype dtype : {KvDtype::Float16, KvDtype::Float32, KvDtype::Int8}) {
      const KvPlan plan = plan_kv(a, cell_dtype(dtype));
      std::vector<Index> sizes;
      for (const LayerGroup& group : plan.groups) sizes.push_back(kv_block_bytes(group));
      BlockPool pool(sizes, 2 * kv_peak_bytes(plan.groups, a.context, 1));
      KvArena arena(pool);
      BlockTable table(plan.groups);
      std::vector<BlockCopy> copies;
      for (Index length = 1; length <= a.context; ++length) {
        ASSERT_TRUE(table.reserve(pool, 1, copies));
        table.commit(pool, 1);
        ASSERT_EQ(table.bytes(pool), kv_cache_bytes(a, dtype, length))
            << text_of(windows) << length;
        table.trim(pool);
        for (Index g = 0; g < table.groups(); ++g) {
          for (const BlockId id : table.blocks(g)) {
            if (id != kNoBlock) arena.block(g, id);
          }
        }
        arena.reclaim(pool);
        const Index expected = kv_bytes(plan.groups, length);
        ASSERT_EQ(table.bytes(pool), expected) << text_of(windows) << length;
        ASSERT_EQ(arena.resident_bytes(), expected) << text_of(windows) << length;
        if (!windows.empty()) continue;
        const Index w = dtype == KvDtype::Float32 ? 4 : dtype == KvDtype::Float16 ? 2 : 1;
        const Index scales = dtype == KvDtype::Int8 ? 4 : 0;
        ASSERT_EQ(expected, (length + 31) / 32 * 32 * 4 * 2 * (2 * 16 * w + scales));
      }
      EXPECT_TRUE(copies.empty());
      table.release(pool);
    }
  }
}

}  // namespace
}  // namespace hone::infer
