// SPDX-License-Identifier: Apache-2.0
// The int8 cache: where its bytes lie, how far it may be from what was written, and what values
// that int8 cannot hold do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/attention/attention.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kInfinity;
using test::kNan;
using test::random_values;
using Values = std::vector<float>;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// The keys and values of one layer and what the cache has of them; every byte that nothing was
// written to is 0xff, so that an unused scale is NaN.
struct Cache {
  Cache(Index kv_heads, Index head_dim, Index tokens) : k(0), v(0) {
    layout = {.dtype = Dtype::Int8, .layers = 2, .kv_heads = kv_heads, .head_dim = head_dim};
    const Index count = ceil_div(tokens, kKvBlockTokens);
    memory.assign(at(count * layout.block_bytes()), std::byte{0xff});
    for (Index i = 0; i < count; ++i) blocks.push_back(memory.data() + i * layout.block_bytes());
  }
  KvView view() const { return {layout, 1, blocks}; }
  void write(Values keys, Values values, Index first = 0) {
    k = std::move(keys), v = std::move(values);
    const Index width = layout.kv_heads * layout.head_dim;
    write_kv({.k = k.data(),
              .v = v.data(),
              .stride = width,
              .rows = std::ssize(k) / width,
              .first_position = first,
              .head_end = layout.kv_heads,
              .cache = view()});
  }
  double scale(bool key, Index t, Index head) const {
    const Index block = t / kKvBlockTokens;
    const auto* scales = key ? view().key_scales(block, head) : view().value_scales(block, head);
    return f16_to_float(scales[t % kKvBlockTokens]);
  }
  int cell(bool key, Index t, Index head, Index i) const {
    const Index block = t / kKvBlockTokens, token = t % kKvBlockTokens;
    const std::byte* plane = key ? view().keys(block, head) : view().values(block, head);
    const Index place = key ? layout.key_element(token, i) : token * layout.head_dim + i;
    return reinterpret_cast<const std::int8_t*>(plane)[place];
  }

  KvLayout layout;
  std::vector<std::byte> memory;
  std::vector<std::byte*> blocks;
  Values k, v;
};

// Outputs of q [rows, heads, head_dim], whose first row stands at `first`.
Values attend(const Cache& cache, const Values& q, Index heads, Index first, Index window = 0,
              Executor& executor = serial_executor()) {
  const Index width = heads * cache.layout.head_dim;
  const AttentionSequence sequence{
      .rows = std::ssize(q) / width, .first_position = first, .blocks = cache.blocks};
  Values out(q.size(), -7.0f);
  attention({.q = q.data(),
             .q_stride = width,
             .out = out.data(),
             .out_stride = width,
             .heads = heads,
             .scale = 0.25f,
             .window = window,
             .layout = cache.layout,
             .layer = 1,
             .sequences = {&sequence, 1}},
            executor);
  return out;
}

TEST(Int8Layout, every_element_and_scale_has_a_place_of_its_own) {
  for (const Index dim : {1, 7, 16, 33}) {
    const KvLayout layout{.dtype = Dtype::Int8, .layers = 3, .kv_heads = 2, .head_dim = dim};
    std::set<Index> places;
    Index count = 0;
    const auto take = [&](Index begin, Index bytes) {
      for (Index i = 0; i < bytes; ++i) places.insert(begin + i), ++count;
    };
    for (Index layer = 0; layer < 3; ++layer) {
      for (Index head = 0; head < 2; ++head) {
        for (Index token = 0; token < kKvBlockTokens; ++token) {
          for (Index i = 0; i < dim; ++i) {
            take(layout.key_offset(layer, head) + layout.key_element(token, i), 1);
            take(layout.value_offset(layer, head) + token * dim + i, 1);
          }
          take(layout.key_scale_offset(layer, head) + 2 * token, 2);
          take(layout.value_scale_offset(layer, head) + 2 * token, 2);
        }
      }
    }
    EXPECT_EQ(static_cast<Index>(places.size()), count) << "no two share a byte";
    EXPECT_EQ(count, layout.block_bytes());
    EXPECT_EQ(*places.begin(), 0);
    EXPECT_EQ(*places.rbegin(), layout.block_bytes() - 1);
  }
}

TEST(Int8Layout, takes_at_most_0_53_of_f16_from_heads_of_64_on) {
  for (const Index dim : {64, 80, 96, 128, 256}) {
    KvLayout layout{.dtype = Dtype::Int8, .layers = 5, .kv_heads = 3, .head_dim = dim};
    const auto bytes = static_cast<double>(layout.block_bytes());
    layout.dtype = Dtype::Float16;
    EXPECT_LE(bytes, 0.53 * static_cast<double>(layout.block_bytes())) << dim;
  }
}

TEST(Int8Writing, errs_by_at_most_half_a_scale_and_the_scale_is_tight) {
  for (const Index dim : {1, 5, 16, 24, 100, 512}) {
    for (const float size : {1e-7f, 1e-3f, 1.0f, 300.0f, 8e6f}) {
      Cache cache(3, dim, 37);
      cache.write(random_values(37 * 3 * dim, 1, size), random_values(37 * 3 * dim, 2, size));
      for (const bool key : {true, false}) {
        const Values& from = key ? cache.k : cache.v;
        for (Index t = 0; t < 37; ++t) {
          for (Index head = 0; head < 3; ++head) {
            const double scale = cache.scale(key, t, head);
            double most = 0;
            for (Index i = 0; i < dim; ++i) {
              const double x = from[at((t * 3 + head) * dim + i)];
              most = std::max(most, std::abs(x));
              ASSERT_LE(std::abs(scale * cache.cell(key, t, head, i) - x), scale * 0.50001);
              ASSERT_GE(cache.cell(key, t, head, i), -127);
            }
            ASSERT_GE(scale * 127, most * (1 - 1e-6));
            ASSERT_LE(scale, most / 127 * (1 + 0x1p-10) + 0x1p-24) << "one step of f16 above";
          }
        }
      }
    }
  }
}

TEST(Int8Writing, zeros_stay_zero_and_one_large_element_takes_the_range) {
  Cache cache(1, 20, 32);
  Values k(32 * 20, 0.0f), v(32 * 20, -0.0f);
  v[5 * 20 + 3] = -127.0f;
  v[5 * 20 + 4] = 0.4f;
  cache.write(k, v);
  for (Index t = 0; t < 32; ++t) {
    for (Index i = 0; i < 20; ++i) {
      EXPECT_EQ(cache.cell(true, t, 0, i), 0);
      EXPECT_EQ(cache.cell(false, t, 0, i), t == 5 && i == 3 ? -127 : 0);
    }
    EXPECT_EQ(cache.scale(true, t, 0), 0);
    EXPECT_EQ(cache.scale(false, t, 0), t == 5 ? 1 : 0);
  }
  for (const float out : attend(cache, random_values(40, 3), 2, 31)) {
    EXPECT_TRUE(std::isfinite(out));
  }
}

TEST(Int8Writing, touches_its_cells_and_scales_only) {
  Cache cache(3, 8, 64);
  const Values ones(4 * 24, 1.0f);
  write_kv({.k = ones.data(),
            .v = ones.data(),
            .stride = 24,
            .rows = 4,
            .first_position = 30,
            .head_begin = 1,
            .head_end = 2,
            .cache = cache.view()});
  const auto changed =
      std::ranges::count_if(cache.memory, [](std::byte b) { return b != std::byte{0xff}; });
  EXPECT_EQ(changed, 4 * 2 * (8 + 2));
}

TEST(Int8Writing, reads_its_rows_up_to_the_page_and_no_further) {
  for (const Index dim : {1, 7, 16, 31}) {
    Cache cache(3, dim, 32);
    const test::GuardedFloats k(random_values(2 * 3 * dim, 1)), v(random_values(2 * 3 * dim, 2));
    write_kv({.k = k.data(),
              .v = v.data(),
              .stride = 3 * dim,
              .rows = 2,
              .head_end = 3,
              .cache = cache.view()});
    EXPECT_NEAR(cache.scale(false, 1, 2) * cache.cell(false, 1, 2, dim - 1), v.data()[6 * dim - 1],
                0.005);
  }
}

// A score moves by at most scale_k / 2 * sum |q|, call it d, so that every probability moves by a
// factor of at most exp(2 d), and an output by at most (exp(2 d) - 1) max |v| + scale_v / 2.
TEST(Int8Attention, stays_within_the_bound_of_its_rounding) {
  for (const Index head_dim : {8, 24, 64, 128}) {
    for (const Index tokens : {1, 33, 257, 530}) {
      const Index group = 3, heads = 2 * group;
      Cache cache(2, head_dim, tokens);
      cache.write(random_values(tokens * 2 * head_dim, 1), random_values(tokens * 2 * head_dim, 2));
      const Values q = random_values(heads * head_dim, 3);
      const Values out = attend(cache, q, heads, tokens - 1);
      for (Index head = 0; head < heads; ++head) {
        const Index kv_head = head / group;
        double total = 0, sum_q = 0, worst_k = 0, worst_v = 0;
        std::vector<double> expected(at(head_dim), 0.0);
        for (Index i = 0; i < head_dim; ++i) sum_q += std::abs(q[at(head * head_dim + i)]);
        for (Index t = 0; t < tokens; ++t) {
          const Index row = (t * 2 + kv_head) * head_dim;
          double score = 0;
          for (Index i = 0; i < head_dim; ++i) {
            score += 0.25 * q[at(head * head_dim + i)] * cache.k[at(row + i)];
          }
          total += std::exp(score);
          for (Index i = 0; i < head_dim; ++i) {
            expected[at(i)] += std::exp(score) * cache.v[at(row + i)];
          }
          worst_k = std::max(worst_k, cache.scale(true, t, kv_head));
          worst_v = std::max(worst_v, cache.scale(false, t, kv_head));
        }
        const double moved = 0.25 * sum_q * worst_k / 2;
        const double bound = std::expm1(2 * moved) + worst_v / 2 + 1e-5;
        for (Index i = 0; i < head_dim; ++i) {
          ASSERT_NEAR(out[at(head * head_dim + i)], expected[at(i)] / total, bound)
              << head_dim << " " << tokens;
        }
      }
    }
  }
}

// Powers of two times whole numbers up to 127 are exact in int8, so that its output is that of f32.
TEST(Int8Attention, of_representable_values_is_that_of_f32) {
  const Index tokens = 300, dim = 16;
  Values k = test::random_integers(tokens * dim, 1, 126),
         v = test::random_integers(tokens * dim, 2, 126);
  for (Index t = 0; t < tokens; ++t) {
    k[at(t * dim)] = v[at(t * dim)] = 127;
    for (Index i = 0; i < dim; ++i) {
      k[at(t * dim + i)] *= std::ldexp(1.0f, static_cast<int>(t % 5) - 9);
      v[at(t * dim + i)] *= std::ldexp(1.0f, static_cast<int>(t % 7) - 8);
    }
  }
  Cache cache(1, dim, tokens), wide(1, dim, tokens);
  wide.layout.dtype = Dtype::Float32;
  wide.memory.assign(at(std::ssize(wide.blocks) * wide.layout.block_bytes()), std::byte{0xff});
  for (std::size_t i = 0; i < wide.blocks.size(); ++i) {
    wide.blocks[i] = wide.memory.data() + static_cast<Index>(i) * wide.layout.block_bytes();
  }
  cache.write(k, v);
  wide.write(k, v);
  for (const Index rows : {1, 12, 100}) {
    const Values q = random_values(rows * 4 * dim, 3);
    const Values got = attend(cache, q, 4, tokens - rows), want = attend(wide, q, 4, tokens - rows);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-4) << rows;
  }
}

TEST(Int8Attention, a_row_depends_on_its_cache_only_bit_for_bit) {
  const Index tokens = 301;
  ThreadPool pool(3);
  for (const Index window : {0, 40}) {
    for (const Index head_dim : {10, 64}) {
      Cache cache(2, head_dim, tokens);
      cache.write(random_values(tokens * 2 * head_dim, 1, 2),
                  random_values(tokens * 2 * head_dim, 2, 2));
      const Index width = 8 * head_dim;
      const Values q = random_values(tokens * width, 4, 2);
      const Values whole = attend(cache, q, 8, 0, window);
      for (const Index chunk : {1, 2, 3, 16, 100}) {
        for (Index first = 0; first < tokens; first += chunk) {
          const Index rows = std::min(chunk, tokens - first);
          const Values part(q.begin() + first * width, q.begin() + (first + rows) * width);
          const Values out = attend(cache, part, 8, first, window, pool);
          ASSERT_TRUE(std::equal(out.begin(), out.end(), whole.begin() + first * width))
              << window << " " << chunk << " " << first;
        }
      }
    }
  }
}

TEST(Int8Attention, unused_cells_may_hold_anything) {
  Cache cache(2, 16, 40);  // the scales of tokens 40 … 63 are NaN
  cache.write(random_values(40 * 32, 1), random_values(40 * 32, 2));
  for (const Index rows : {1, 8, 9, 30}) {
    for (const float out : attend(cache, random_values(rows * 64, 3), 4, 40 - rows)) {
      ASSERT_TRUE(std::isfinite(out));
    }
  }
  const Values q = random_values(64, 5), before = attend(cache, q, 4, 9);
  cache.write(Values(30 * 32, kNan), Values(30 * 32, kNan), 10);
  EXPECT_EQ(attend(cache, q, 4, 9), before);
}

TEST(Int8Attention, what_int8_cannot_hold_makes_its_readers_nan_and_nobody_else) {
  for (const float bad : {kNan, kInfinity, -kInfinity, 8.4e6f}) {
    for (const bool key : {true, false}) {
      for (const Index rows : {1, 30}) {
        Cache cache(2, 16, 60);
        Values k = random_values(60 * 32, 1), v = random_values(60 * 32, 2);
        (key ? k : v)[at(50 * 32 + 19)] = bad;  // token 50, KV head 1
        cache.write(k, v);
        const Values q = random_values(60 * 64, 3);
        for (Index first = 0; first < 60; first += rows) {
          const Values part(q.begin() + first * 64, q.begin() + (first + rows) * 64);
          const Values out = attend(cache, part, 4, first);
          for (Index row = 0; row < rows; ++row) {
            for (Index i = 0; i < 64; ++i) {
              const bool is_reader = first + row >= 50 && i >= 32;
              ASSERT_EQ(std::isnan(out[at(row * 64 + i)]), is_reader)
                  << bad << " row " << first + row << " element " << i;
            }
          }
        }
      }
    }
  }
  Cache cache(1, 16, 40);
  Values v = random_values(40 * 16, 2);
  v[3] = kNan;
  cache.write(random_values(40 * 16, 1), v);
  const Values behind = attend(cache, random_values(32, 3), 2, 39, 30);
  for (const float out : behind) EXPECT_TRUE(std::isfinite(out)) << "behind the window";
}

}  // namespace
}  // namespace hone::kernels
