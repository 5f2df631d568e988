// SPDX-License-Identifier: Apache-2.0
// Rows of several sequences in one call, and windows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/attention/attention.h"
#include "tests/kernels/kernel_support.h"
#include "tests/support/straggling_executor.h"

namespace hone::kernels {
namespace {

constexpr Index kLayer = 1;

// The cache of one sequence in blocks of its own, whose unused cells are NaN.
struct Cache {
  Cache(const KvLayout& layout, Index tokens, std::uint64_t seed)
      : memory(static_cast<std::size_t>(ceil_div(tokens, kKvBlockTokens) * layout.block_bytes()),
               std::byte{0xff}) {
    for (Index at = 0; at < std::ssize(memory); at += layout.block_bytes()) {
      blocks.push_back(memory.data() + at);
    }
    const Index width = layout.kv_heads * layout.head_dim;
    const auto k = test::random_values(tokens * width, seed, 2);
    const auto v = test::random_values(tokens * width, seed + 1, 2);
    write_kv({.k = k.data(),
              .v = v.data(),
              .stride = width,
              .rows = tokens,
              .head_end = layout.kv_heads,
              .cache = {layout, kLayer, blocks}});
  }
  std::vector<std::byte> memory;
  std::vector<std::byte*> blocks;
};

struct Work {
  Index rows, tokens;  // the last rows of so many tokens
};

class Batch {
 public:
  Batch(Dtype dtype, Index heads, Index kv_heads, Index dim, const std::vector<Work>& work)
      : heads_(heads), width_(heads * dim) {
    layout_ = {.dtype = dtype, .layers = 2, .kv_heads = kv_heads, .head_dim = dim};
    caches_.reserve(work.size());
    Index rows = 0;
    for (const Work& one : work) {
      caches_.emplace_back(layout_, one.tokens, 10 + 2 * caches_.size());
      sequences_.push_back({.rows = one.rows,
                            .first_position = one.tokens - one.rows,
                            .blocks = caches_.back().blocks});
      rows += one.rows;
    }
    q_ = test::random_values(rows * width_, 3, 2);
  }

  // Outputs of sequences [first, first + count), in one call.
  std::vector<float> run(std::size_t first, std::size_t count, Executor& executor,
                         Index window = 0) const {
    AttentionArgs args = args_of(first, count, window);
    std::vector<float> out(static_cast<std::size_t>(rows_of(first, count) * width_), -7.0f);
    args.out = out.data();
    attention(args, executor);
    return out;
  }
  std::vector<float> all(Executor& executor, Index window = 0) const {
    return run(0, sequences_.size(), executor, window);
  }
  std::vector<float> one_by_one(Index window = 0) const {
    std::vector<float> out;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      const auto part = run(i, 1, serial_executor(), window);
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }
  std::vector<float> reference(Index window) const {
    AttentionArgs args = args_of(0, sequences_.size(), window);
    std::vector<float> out(q_.size());
    args.out = out.data();
    attention_ref(args);
    return out;
  }
  // Takes away the blocks that no row sees.
  void forget_behind(Index window) {
    for (std::size_t i = 0; i < caches_.size(); ++i) {
      const Index first = std::max<Index>(0, sequences_[i].first_position + 1 - window);
      std::fill_n(caches_[i].blocks.begin(), first / kKvBlockTokens, nullptr);
    }
  }

 private:
  Index rows_of(std::size_t first, std::size_t count) const {
    Index rows = 0;
    for (std::size_t i = first; i < first + count; ++i) rows += sequences_[i].rows;
    return rows;
  }
  AttentionArgs args_of(std::size_t first, std::size_t count, Index window) const {
    return {.q = q_.data() + rows_of(0, first) * width_,
            .q_stride = width_,
            .out_stride = width_,
            .heads = heads_,
            .scale = 0.3f,
            .window = window,
            .layout = layout_,
            .layer = kLayer,
            .sequences = std::span(sequences_).subspan(first, count)};
  }

  KvLayout layout_;
  Index heads_, width_;
  std::vector<Cache> caches_;
  std::vector<AttentionSequence> sequences_;
  std::vector<float> q_;
};

const std::vector<Work> kDecode(16, {1, 300});
// One of many texts has most of the work, so that workers share it.
const std::vector<Work> kUneven = [] {
  std::vector<Work> work(16, {1, 20});
  work[5] = {1, 3000};
  return work;
}();
const std::vector<Work> kMixed = {{1, 1},  {5, 300},   {1, 257}, {70, 90},
                                  {1, 33}, {200, 700}, {8, 8}};

TEST(AttentionBatch, gives_each_sequence_the_bits_that_it_has_alone) {
  ThreadPool pool(3);
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16, Dtype::Int8}) {
    for (const auto* work : {&kDecode, &kMixed, &kUneven}) {
      const Batch batch(dtype, 8, 2, 24, *work);
      const auto expected = batch.one_by_one();
      EXPECT_EQ(batch.all(serial_executor()), expected);
      EXPECT_EQ(batch.all(pool), expected);
      EXPECT_EQ(batch.one_by_one(100).size(), expected.size());
      EXPECT_EQ(batch.all(pool, 100), batch.one_by_one(100));
    }
  }
}

TEST(AttentionBatch, matches_double_with_and_without_a_window) {
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16, Dtype::Int8}) {
    const Batch batch(dtype, 6, 2, 10, kMixed);
    for (const Index window : {0, 1, 2, 31, 32, 33, 100, 256, 300, 5000}) {
      const auto out = batch.all(serial_executor(), window), expected = batch.reference(window);
      for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], expected[i], 2e-5) << "window " << window << " element " << i;
      }
    }
  }
}

TEST(AttentionBatch, computes_chunks_of_which_each_may_run_twice) {
  hone::test::StragglingExecutor late;
  for (const auto& work : {kDecode, kMixed, std::vector<Work>{{1, 700}}}) {
    const Batch batch(Dtype::Float16, 8, 2, 24, work);
    EXPECT_EQ(batch.all(late), batch.all(serial_executor()));
  }
  EXPECT_GT(late.recomputed(), 0);
}

TEST(AttentionWindow, of_one_position_gives_its_value) {
  const Batch batch(Dtype::Float32, 2, 2, 8, {{3, 40}});
  const auto v = test::random_values(40 * 16, 11, 2);
  const auto out = batch.all(serial_executor(), 1);
  for (Index row = 0; row < 3; ++row) {
    for (Index i = 0; i < 16; ++i) {
      EXPECT_EQ(out[static_cast<std::size_t>(row * 16 + i)],
                v[static_cast<std::size_t>((37 + row) * 16 + i)]);
    }
  }
}

TEST(AttentionWindow, beyond_the_text_changes_no_bit) {
  const Batch batch(Dtype::Float16, 8, 2, 24, kMixed);
  EXPECT_EQ(batch.all(serial_executor(), 700), batch.all(serial_executor()));
}

TEST(AttentionWindow, needs_no_block_behind_it) {
  for (const Index window : {1, 32, 40, 260}) {
    Batch batch(Dtype::Float16, 8, 2, 24, kMixed);
    const auto expected = batch.all(serial_executor(), window);
    for (const float value : expected) ASSERT_TRUE(std::isfinite(value));
    batch.forget_behind(window);
    EXPECT_EQ(batch.all(serial_executor(), window), expected) << window;
  }
}

}  // namespace
}  // namespace hone::kernels
