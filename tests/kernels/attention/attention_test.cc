// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/buffer.h"
#include "hone/core/error.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

// Runs every chunk on a fresh worker number, last chunk first: what a pool may do at worst.
class BackwardExecutor final : public Executor {
 public:
  int workers() const override { return 3; }
  void parallel_for(Index n, Index grain, RangeBody body) override {
    for (Index chunk = ceil_div(n, grain) - 1; chunk >= 0; --chunk) {
      body(chunk * grain, std::min(n, (chunk + 1) * grain), static_cast<int>(chunk % 3));
    }
  }
  PublishTicket parallel_publish(PublishWork work) override {
    for (Index chunk = work.chunks - 1; chunk >= 0; --chunk, ++published) {
      const Buffer slot(work.slot_bytes);
      work.compute(chunk, slot.data());
      work.commit(chunk, slot.data());
    }
    return {};
  }
  void wait_left(PublishTicket) override {}

  Index published = 0;
};

// A sequence of `tokens` random keys and values; cells that are not written hold NaN.
struct Sequence {
  Sequence(Dtype dtype, Index kv_heads, Index head_dim, Index tokens) {
    layout = {.dtype = dtype, .layers = 2, .kv_heads = kv_heads, .head_dim = head_dim};
    const Index count = ceil_div(tokens, kKvBlockTokens);
    memory.assign(static_cast<std::size_t>(count * layout.block_bytes()), std::byte{0xff});
    for (Index i = 0; i < count; ++i) blocks.push_back(memory.data() + i * layout.block_bytes());
    k = test::random_values(tokens * kv_heads * head_dim, 1, 2);
    v = test::random_values(tokens * kv_heads * head_dim, 2, 2);
    write(0, tokens);
  }
  KvView view() const { return {layout, 1, blocks}; }
  std::vector<AttentionSequence> rows_at(Index first, Index rows) const {
    return {{.rows = rows, .first_position = first, .blocks = blocks}};
  }
  void write(Index first, Index rows) {
    const Index width = layout.kv_heads * layout.head_dim;
    write_kv({.k = k.data() + first * width,
              .v = v.data() + first * width,
              .stride = width,
              .rows = rows,
              .first_position = first,
              .head_end = layout.kv_heads,
              .cache = view()});
  }

  KvLayout layout;
  std::vector<std::byte> memory;
  std::vector<std::byte*> blocks;
  std::vector<float> k, v;
};

std::vector<float> run(const Sequence& sequence, const std::vector<float>& q, Index heads,
                       Index first, Index rows, Executor& executor = serial_executor()) {
  const Index width = heads * sequence.layout.head_dim;
  std::vector<float> out(static_cast<std::size_t>(rows * width), -7.0f);
  attention({.q = q.data() + first * width,
             .q_stride = width,
             .out = out.data(),
             .out_stride = width,
             .heads = heads,
             .scale = 0.3f,
             .layout = sequence.layout,
             .layer = 1,
             .sequences = sequence.rows_at(first, rows)},
            executor);
  return out;
}

struct Case {
  Index heads, kv_heads, head_dim;
};

TEST(Attention, matches_double_at_block_and_segment_borders) {
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16, Dtype::Int8}) {
    for (const Case c : {Case{8, 8, 8}, Case{8, 1, 64}, Case{6, 2, 10}, Case{16, 1, 16}}) {
      for (const Index tokens : {1, 2, 31, 32, 33, 255, 256, 257, 520}) {
        const Sequence sequence(dtype, c.kv_heads, c.head_dim, tokens);
        const auto q = test::random_values(tokens * c.heads * c.head_dim, 3, 2);
        const Index width = c.heads * c.head_dim;
        const Index first = std::max<Index>(0, tokens - 12), rows = tokens - first;
        const auto out = run(sequence, q, c.heads, first, rows);
        std::vector<float> expected(out.size());
        attention_ref({.q = q.data() + first * width,
                       .q_stride = width,
                       .out = expected.data(),
                       .out_stride = width,
                       .heads = c.heads,
                       .scale = 0.3f,
                       .layout = sequence.layout,
                       .layer = 1,
                       .sequences = sequence.rows_at(first, rows)});
        for (std::size_t i = 0; i < out.size(); ++i) {
          // |score| <= 0.3 * 4 * head_dim in f32: its rounding is the error of a probability.
          const double tolerance =
              4 * 1.2e-7 * std::sqrt(1.2 * static_cast<double>(c.head_dim) * 64);
          ASSERT_NEAR(out[i], expected[i], 2 * tolerance)
              << "tokens " << tokens << " heads " << c.heads << " element " << i;
        }
      }
    }
  }
}

TEST(Attention, decode_and_every_prefill_chunk_agree_bit_for_bit) {
  const Index tokens = 301;
  BackwardExecutor backward;
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16, Dtype::Int8}) {
    for (const Case c : {Case{8, 2, 24}, Case{3, 3, 8}, Case{8, 1, 64}}) {
      const Sequence sequence(dtype, c.kv_heads, c.head_dim, tokens);
      const auto q = test::random_values(tokens * c.heads * c.head_dim, 4, 2);
      const auto whole = run(sequence, q, c.heads, 0, tokens);
      for (const Index chunk : {1, 3, 16, 100}) {
        for (Index first = 0; first < tokens; first += chunk) {
          const Index rows = std::min(chunk, tokens - first);
          const auto part = run(sequence, q, c.heads, first, rows, backward);
          const auto* expected = whole.data() + first * c.heads * c.head_dim;
          ASSERT_TRUE(std::equal(part.begin(), part.end(), expected))
              << "chunk " << chunk << " at " << first << " heads " << c.heads;
        }
      }
    }
  }
  EXPECT_GT(backward.published, 0);
}

TEST(Attention, unused_cells_may_hold_nan) {
  Sequence sequence(Dtype::Float16, 2, 16,
                    40);  // cells 40…63 of the memory are NaN by construction
  const auto q = test::random_values(40 * 4 * 16, 5, 2);
  for (const float value : run(sequence, q, 4, 0, 40)) ASSERT_TRUE(std::isfinite(value));
  for (const float value : run(sequence, q, 4, 39, 1)) ASSERT_TRUE(std::isfinite(value));
  const auto before = run(sequence, q, 4, 9, 1);
  std::fill(sequence.k.begin() + 10 * 32, sequence.k.end(),
            std::numeric_limits<float>::quiet_NaN());
  sequence.write(10, 30);
  EXPECT_EQ(run(sequence, q, 4, 9, 1), before);
}

TEST(Attention, refuses_to_overwrite_the_queries) {
  const Sequence sequence(Dtype::Float32, 1, 8, 50);
  auto q = test::random_values(50 * 4 * 8, 6, 2);
  EXPECT_THROW(attention({.q = q.data(),
                          .q_stride = 32,
                          .out = q.data(),
                          .out_stride = 32,
                          .heads = 4,
                          .scale = 0.3f,
                          .layout = sequence.layout,
                          .layer = 1,
                          .sequences = sequence.rows_at(0, 50)},
                         serial_executor()),
               Error);
}

TEST(Attention, refuses_a_cache_with_too_few_blocks) {
  const Sequence sequence(Dtype::Float32, 1, 8, 32);
  const auto q = test::random_values(40 * 8, 6, 2);
  EXPECT_THROW(run(sequence, q, 1, 0, 33), Error);
}

TEST(KvWrite, rounds_f16_to_nearest_even_in_every_lane) {
  Sequence sequence(Dtype::Float16, 1, 24, 33);
  for (std::size_t i = 0; i < sequence.k.size(); ++i) {
    sequence.k[i] = 1.0f + static_cast<float>(i) * 0x1p-12f;  // quarters of an f16 step
    sequence.v[i] = -sequence.k[i] * 3e-6f;                   // subnormal in f16
  }
  sequence.write(0, 33);
  for (Index token = 0; token < 33; ++token) {
    for (Index i = 0; i < 24; ++i) {
      const Index block = token / 32, at = sequence.layout.key_element(token % 32, i);
      const auto* keys = reinterpret_cast<const std::uint16_t*>(sequence.view().keys(block, 0));
      const auto* values = reinterpret_cast<const std::uint16_t*>(sequence.view().values(block, 0));
      const auto from = static_cast<std::size_t>(token * 24 + i);
      ASSERT_EQ(keys[at], float_to_f16(sequence.k[from]));
      ASSERT_EQ(values[token % 32 * 24 + i], float_to_f16(sequence.v[from]));
    }
  }
}

TEST(KvLayout, counts_bytes_as_the_size_formula_does) {
  // 22 layers, 4 KV heads, head_dim 64, f16: 22,528 bytes a token.
  const KvLayout layout{.dtype = Dtype::Float16, .layers = 22, .kv_heads = 4, .head_dim = 64};
  EXPECT_EQ(layout.block_bytes(), kKvBlockTokens * 22528);
}

}  // namespace
}  // namespace hone::kernels
