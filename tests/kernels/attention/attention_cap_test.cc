// SPDX-License-Identifier: Apache-2.0
// Soft caps of scores and windows, against plain loops in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/error.h"
#include "hone/kernels/attention/attention.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

constexpr Index kHeads = 4, kKvHeads = 2, kDim = 16;

struct Cache {
  Cache(Dtype dtype, Index tokens)
      : layout{.dtype = dtype, .layers = 1, .kv_heads = kKvHeads, .head_dim = kDim},
        memory(static_cast<std::size_t>(ceil_div(tokens, kKvBlockTokens) * layout.block_bytes()),
               std::byte{0xff}) {  // NaN where nothing is written
    for (Index i = 0; i < ceil_div(tokens, kKvBlockTokens); ++i)
      blocks.push_back(memory.data() + i * layout.block_bytes());
    const auto k = test::random_values(tokens * kKvHeads * kDim, 1, 2);
    const auto v = test::random_values(tokens * kKvHeads * kDim, 2, 2);
    write_kv({.k = k.data(),
              .v = v.data(),
              .stride = kKvHeads * kDim,
              .rows = tokens,
              .head_end = kKvHeads,
              .cache = {layout, 0, blocks}});
  }
  KvLayout layout;
  std::vector<std::byte> memory;
  std::vector<std::byte*> blocks;
};

AttentionArgs args_of(const std::vector<float>& q, std::vector<float>& out, const Cache& cache,
                      const std::vector<AttentionSequence>& sequences) {
  return {.q = q.data(),
          .q_stride = kHeads * kDim,
          .out = out.data(),
          .out_stride = kHeads * kDim,
          .heads = kHeads,
          .scale = 0.5f,
          .layout = cache.layout,
          .layer = 0,
          .sequences = sequences};
}

TEST(AttentionCap, matches_double_with_and_without_a_window) {
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16}) {
    for (const float cap : {0.7f, 5.0f, 50.0f}) {
      for (const Index window : {0, 3, 40}) {
        for (const Index rows : {1, 9, 290}) {
          const Index tokens = 300;
          const Cache cache(dtype, tokens);
          const auto q = test::random_values(rows * kHeads * kDim, 3, 2);
          std::vector<float> out(q.size()), expected(q.size());
          const std::vector<AttentionSequence> sequences{
              {.rows = rows, .first_position = tokens - rows, .blocks = cache.blocks}};
          AttentionArgs args = args_of(q, out, cache, sequences);
          args.soft_cap = cap;
          args.window = window;

          attention(args, serial_executor());
          args.out = expected.data();
          attention_ref(args);
          for (std::size_t i = 0; i < out.size(); ++i)
            ASSERT_NEAR(out[i], expected[i], 5e-5) << cap << " " << window << " at " << i;
        }
      }
    }
  }
}

TEST(AttentionCap, a_huge_cap_changes_nothing_and_a_tiny_one_averages) {
  const Index tokens = 50;
  const Cache cache(Dtype::Float32, tokens);
  const auto q = test::random_values(kHeads * kDim, 3, 2);
  const std::vector<AttentionSequence> sequences{
      {.rows = 1, .first_position = tokens - 1, .blocks = cache.blocks}};

  const auto run = [&](float cap) {
    std::vector<float> out(q.size());
    AttentionArgs args = args_of(q, out, cache, sequences);
    args.soft_cap = cap;
    attention(args, serial_executor());
    return out;
  };
  const auto plain = run(0), huge = run(1e4f), tiny = run(1e-6f);
  const auto v = test::random_values(tokens * kKvHeads * kDim, 2, 2);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_NEAR(huge[i], plain[i], 1e-4);
    const auto dim = static_cast<Index>(i) % kDim, head = static_cast<Index>(i) / kDim;
    double mean = 0;
    for (Index t = 0; t < tokens; ++t)
      mean += v[static_cast<std::size_t>((t * kKvHeads + head / (kHeads / kKvHeads)) * kDim + dim)];
    EXPECT_NEAR(tiny[i], mean / static_cast<double>(tokens), 1e-5);
  }
}

TEST(AttentionCap, nan_in_a_query_is_nan_in_its_output) {
  const Cache cache(Dtype::Float32, 40);
  auto q = test::random_values(kHeads * kDim, 3, 2);
  q[0] = std::nanf("");
  std::vector<float> out(q.size());
  const std::vector<AttentionSequence> sequences{
      {.rows = 1, .first_position = 39, .blocks = cache.blocks}};
  AttentionArgs args = args_of(q, out, cache, sequences);
  args.soft_cap = 30;

  attention(args, serial_executor());
  for (Index i = 0; i < kDim; ++i) EXPECT_TRUE(std::isnan(out[static_cast<std::size_t>(i)]));
  EXPECT_TRUE(std::isfinite(out[kDim]));
  args.soft_cap = -1;
  EXPECT_THROW(attention(args, serial_executor()), Error);
}

}  // namespace
}  // namespace hone::kernels
