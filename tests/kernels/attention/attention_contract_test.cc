// SPDX-License-Identifier: Apache-2.0
// What attention and its cache promise beyond being right: symmetries, strides, layers, values that
// are not finite, and refusals in one sentence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/attention/attention.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::error_of;
using test::kInfinity;
using test::kNan;
using test::random_values;
using testing::AllOf;
using testing::HasSubstr;
using Values = std::vector<float>;

// A cache of `layers` layers with its blocks, NaN where nothing was written.
struct Cache {
  Cache(Dtype dtype, Index layers, Index kv_heads, Index head_dim, Index tokens) {
    layout = {.dtype = dtype, .layers = layers, .kv_heads = kv_heads, .head_dim = head_dim};
    const Index count = ceil_div(tokens, kKvBlockTokens);
    memory.assign(static_cast<std::size_t>(count * layout.block_bytes()), std::byte{0xff});
    for (Index i = 0; i < count; ++i) blocks.push_back(memory.data() + i * layout.block_bytes());
  }
  KvView view(Index layer = 0) const { return {layout, layer, blocks}; }
  Index width() const { return layout.kv_heads * layout.head_dim; }
  void write(const Values& k, const Values& v, Index layer = 0, Index first = 0) {
    write_kv({.k = k.data(),
              .v = v.data(),
              .stride = width(),
              .rows = static_cast<Index>(k.size()) / width(),
              .first_position = first,
              .head_end = layout.kv_heads,
              .cache = view(layer)});
  }

  std::vector<AttentionSequence> last_rows(Index rows, Index tokens) const {
    return {{.rows = rows, .first_position = tokens - rows, .blocks = blocks}};
  }

  KvLayout layout;
  std::vector<std::byte> memory;
  std::vector<std::byte*> blocks;
};

// Outputs of q [rows, heads, head_dim] whose last row stands at the cache's last token.
Values attend(const Cache& cache, const Values& q, Index heads, Index tokens, Index layer = 0,
              float scale = 0.25f) {
  const Index width = heads * cache.layout.head_dim;
  const Index rows = static_cast<Index>(q.size()) / width;
  Values out(q.size(), -7.0f);
  attention({.q = q.data(),
             .q_stride = width,
             .out = out.data(),
             .out_stride = width,
             .heads = heads,
             .scale = scale,
             .layout = cache.layout,
             .layer = layer,
             .sequences = cache.last_rows(rows, tokens)},
            serial_executor());
  return out;
}

// Few rows go by segments, many by tiles.
constexpr Index kRowCounts[] = {1, 8, 9, 30};

TEST(AttentionForm, outputs_scale_with_the_values_bit_for_bit) {
  for (const Index rows : kRowCounts) {
    const Index tokens = 290;
    Cache cache(Dtype::Float32, 1, 2, 12, tokens);
    const Values k = random_values(tokens * 24, 1), q = random_values(rows * 48, 3);
    Values v = random_values(tokens * 24, 2);
    cache.write(k, v);
    const Values once = attend(cache, q, 4, tokens);
    for (float& value : v) value *= -8;
    cache.write(k, v);
    const Values scaled = attend(cache, q, 4, tokens);
    for (std::size_t i = 0; i < once.size(); ++i) ASSERT_EQ(scaled[i], -8 * once[i]);
  }
}

TEST(AttentionForm, outputs_stay_within_the_values_they_average) {
  const Index tokens = 300;
  Cache cache(Dtype::Float32, 1, 1, 8, tokens);
  Values v = random_values(tokens * 8, 2);
  for (float& value : v) value = 5 + value;  // within (4, 6)
  cache.write(random_values(tokens * 8, 1, 30), v);
  for (const Index rows : kRowCounts) {
    for (const float out : attend(cache, random_values(rows * 16, 4, 30), 2, tokens)) {
      ASSERT_GT(out, 4 - 1e-5);
      ASSERT_LT(out, 6 + 1e-5);
    }
  }
}

TEST(AttentionForm, a_zero_query_or_scale_gives_the_mean) {
  const Index tokens = 77, dim = 9;
  Cache cache(Dtype::Float32, 1, 1, dim, tokens);
  const Values v = random_values(tokens * dim, 2);
  cache.write(random_values(tokens * dim, 1), v);
  const Values by_query = attend(cache, Values(9, 0.0f), 1, tokens);
  const Values by_scale = attend(cache, random_values(9, 5), 1, tokens, 0, 0.0f);
  for (std::size_t i = 0; i < 9; ++i) {
    double mean = 0;
    for (std::size_t t = 0; t < 77; ++t) mean += v[t * 9 + i];
    EXPECT_NEAR(by_query[i], mean / 77, 1e-6);
    EXPECT_EQ(by_scale[i], by_query[i]);
  }
}

TEST(AttentionForm, heads_that_trade_places_trade_outputs) {
  const Index tokens = 70, dim = 10;
  for (const Index rows : kRowCounts) {
    Cache cache(Dtype::Float16, 1, 1, dim, tokens);
    cache.write(random_values(tokens * dim, 1), random_values(tokens * dim, 2));
    const Values q = random_values(rows * 3 * dim, 3);
    Values turned(q.size());
    const auto move = [&](const Values& from, Values& to) {  // head h to place (h + 1) mod 3
      for (Index row = 0; row < rows; ++row)
        for (Index head = 0; head < 3; ++head)
          std::copy_n(from.begin() + (row * 3 + head) * dim, dim,
                      to.begin() + (row * 3 + (head + 1) % 3) * dim);
    };
    move(q, turned);
    Values expected(q.size());
    move(attend(cache, q, 3, tokens), expected);
    EXPECT_EQ(attend(cache, turned, 3, tokens), expected) << rows;
  }
}

TEST(AttentionForm, later_tokens_change_nothing_for_earlier_queries) {
  Cache cache(Dtype::Float32, 1, 1, 8, 64);
  cache.write(random_values(64 * 8, 1), random_values(64 * 8, 2));
  const Values q = random_values(8, 3);
  for (const Index position : {0, 15, 16, 31, 32, 40}) {
    const Values before = attend(cache, q, 1, position + 1);
    Cache longer = cache;
    for (std::size_t i = 0; i < longer.blocks.size(); ++i)
      longer.blocks[i] = longer.memory.data() + static_cast<Index>(i) * cache.layout.block_bytes();
    const Index rest = 63 - position;
    longer.write(Values(static_cast<std::size_t>(rest * 8), 1e30f),
                 Values(static_cast<std::size_t>(rest * 8), kInfinity), 0, position + 1);
    EXPECT_EQ(attend(longer, q, 1, position + 1), before) << position;
  }
}

// One NaN at token `bad`, element 3 of KV head 0, of two.
Values attend_with_nan(Index bad, bool in_key, Index rows) {
  const Index tokens = 300;
  Cache cache(Dtype::Float32, 1, 2, 16, tokens);
  Values k = random_values(tokens * 32, 1), v = random_values(tokens * 32, 2);
  (in_key ? k : v)[static_cast<std::size_t>(bad * 32 + 3)] = kNan;
  cache.write(k, v);
  return attend(cache, random_values(rows * 64, 3), 4, tokens);
}

TEST(AttentionNotFinite, a_nan_key_reaches_every_query_that_sees_it_and_no_other) {
  for (const Index bad : {0, 5, 31, 32, 100, 255, 256, 290}) {
    for (const Index rows : {1, 4, 40}) {
      const Values out = attend_with_nan(bad, true, rows);
      for (Index i = 0; i < rows * 64; ++i) {
        const Index row = i / 64, head = i % 64 / 16;
        ASSERT_EQ(std::isnan(out[static_cast<std::size_t>(i)]), 300 - rows + row >= bad && head < 2)
            << "key " << bad << ", row " << row << " of " << rows << ", head " << head;
      }
    }
  }
}

TEST(AttentionNotFinite, a_nan_value_reaches_its_element_of_every_query_that_sees_it) {
  for (const Index bad : {0, 5, 31, 32, 100, 255, 256, 290}) {
    for (const Index rows : {1, 4, 40}) {
      const Values out = attend_with_nan(bad, false, rows);
      for (Index i = 0; i < rows * 64; ++i) {
        const Index row = i / 64, head = i % 64 / 16;
        const bool shares = head < 2 && i % 16 == 3, sees = 300 - rows + row >= bad;
        const bool is_nan = std::isnan(out[static_cast<std::size_t>(i)]);
        // An earlier row of the call multiplies the value by zero, which is NaN too.
        ASSERT_TRUE(shares ? is_nan || !sees : !is_nan)
            << "value " << bad << ", row " << row << " of " << rows << ", head " << head;
      }
    }
  }
}

TEST(AttentionNotFinite, scores_that_overflow_do_not_pass_as_numbers) {
  Cache cache(Dtype::Float32, 1, 1, 4, 40);
  Values k = random_values(40 * 4, 1);
  k[21 * 4] = 3e38f;
  cache.write(k, random_values(40 * 4, 2));
  for (const Index rows : {1, 12})
    for (const float out : attend(cache, Values(static_cast<std::size_t>(rows * 4), 1e30f), 1, 40))
      ASSERT_TRUE(std::isnan(out));
}

TEST(AttentionLayers, of_one_block_do_not_see_each_other) {
  const Index tokens = 50;
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16}) {
    Cache cache(dtype, 3, 2, 8, tokens);
    const Values q = random_values(16, 9);
    std::vector<Values> alone;
    for (Index layer = 0; layer < 3; ++layer) {
      cache.write(random_values(tokens * 16, 10 + static_cast<std::uint64_t>(layer)),
                  random_values(tokens * 16, 20 + static_cast<std::uint64_t>(layer)), layer);
      alone.push_back(attend(cache, q, 2, tokens, layer));
    }
    for (Index layer = 0; layer < 3; ++layer)
      EXPECT_EQ(attend(cache, q, 2, tokens, layer), alone[static_cast<std::size_t>(layer)]);
    EXPECT_NE(alone[0], alone[1]);
    EXPECT_NE(alone[1], alone[2]);
  }
}

TEST(AttentionStrides, rows_may_lie_apart_and_what_is_between_stays) {
  const Index tokens = 45, dim = 6, heads = 2, width = heads * dim;
  Cache cache(Dtype::Float32, 1, 1, dim, tokens);
  cache.write(random_values(tokens * dim, 1), random_values(tokens * dim, 2));
  for (const Index rows : kRowCounts) {
    const Index q_stride = width + 3, out_stride = width + 5;
    const Values q = random_values(rows * q_stride, 3);
    Values close, out(static_cast<std::size_t>(rows * out_stride), -7.0f);
    for (Index row = 0; row < rows; ++row)
      close.insert(close.end(), q.begin() + row * q_stride, q.begin() + row * q_stride + width);
    attention({.q = q.data(),
               .q_stride = q_stride,
               .out = out.data(),
               .out_stride = out_stride,
               .heads = heads,
               .scale = 0.25f,
               .layout = cache.layout,
               .sequences = cache.last_rows(rows, tokens)},
              serial_executor());
    const Values expected = attend(cache, close, heads, tokens);
    for (Index i = 0; i < rows * out_stride; ++i) {
      const Index row = i / out_stride, at = i % out_stride;
      ASSERT_EQ(out[static_cast<std::size_t>(i)],
                at < width ? expected[static_cast<std::size_t>(row * width + at)] : -7.0f);
    }
  }
}

TEST(AttentionCalls, of_any_size_may_follow_each_other) {
  ThreadPool pool(3);
  for (const Index tokens : {300, 1, 520, 33, 520}) {
    Cache cache(Dtype::Float16, 1, 2, 8, tokens);
    cache.write(random_values(tokens * 16, 1), random_values(tokens * 16, 2));
    const Index rows = std::min<Index>(tokens, 20);
    const Values q = random_values(rows * 32, 3);
    Values out(q.size());
    attention({.q = q.data(),
               .q_stride = 32,
               .out = out.data(),
               .out_stride = 32,
               .heads = 4,
               .scale = 0.25f,
               .layout = cache.layout,
               .sequences = cache.last_rows(rows, tokens)},
              pool);
    EXPECT_EQ(out, attend(cache, q, 4, tokens)) << tokens;
  }
}

// A call that every case below spoils in one place.
struct Call {
  Cache cache{Dtype::Float32, 1, 2, 8, 40};
  AttentionSequence sequence{.rows = 2, .first_position = 3, .blocks = cache.blocks};
  Values q = Values(64, 0.0f), out = Values(64, 0.0f);
  AttentionArgs args{.q = q.data(),
                     .q_stride = 32,
                     .out = out.data(),
                     .out_stride = 32,
                     .heads = 4,
                     .layout = cache.layout,
                     .sequences = {&sequence, 1}};
  std::string sentence() {
    return error_of([&] { attention(args, serial_executor()); });
  }
};

TEST(AttentionHostile, every_wrong_argument_is_named) {
  const auto spoilt = [](const auto& spoil) {
    Call call;
    spoil(call.args);
    return call.sentence();
  };
  const auto misplaced = [](const auto& spoil) {
    Call call;
    spoil(call.sequence);
    return call.sentence();
  };
  EXPECT_EQ(spoilt([](AttentionArgs&) {}), "no error");
  EXPECT_THAT(spoilt([](auto& a) { a.layout.dtype = Dtype::BFloat16; }),
              HasSubstr("[attention] expected an f16, f32 or i8 cache, got bf16"));
  EXPECT_THAT(spoilt([](auto& a) { a.heads = 3; }), HasSubstr("a multiple of 2 heads, got 3"));
  EXPECT_THAT(spoilt([](auto& a) { a.heads = 0; }), HasSubstr("a multiple of"));
  EXPECT_THAT(spoilt([](auto& a) { a.layout.kv_heads = 0; }), HasSubstr("a multiple of"));
  EXPECT_THAT(spoilt([](auto& a) { a.q_stride = 31; }),
              HasSubstr("strides of at least 32, got 31 and 32"));
  EXPECT_THAT(spoilt([](auto& a) { a.out_stride = 31; }), HasSubstr("got 32 and 31"));
  EXPECT_THAT(misplaced([](auto& s) { s.first_position = 63; }),
              HasSubstr("expected 3 blocks, got 2"));
  EXPECT_THAT(misplaced([](auto& s) { s.first_position = -1; }), HasSubstr("blocks"));
  EXPECT_THAT(misplaced([](auto& s) { s.rows = -1; }), HasSubstr("blocks"));
  EXPECT_THAT(spoilt([](auto& a) { a.layer = 1; }), HasSubstr("a layer below 1, got 1"));
  EXPECT_THAT(spoilt([](auto& a) { a.layer = -1; }), HasSubstr("a layer below 1, got -1"));
  EXPECT_THAT(spoilt([](auto& a) { a.window = -1; }), HasSubstr("a window of 0 or more"));
}

TEST(AttentionHostile, no_rows_write_nothing) {
  Call call;
  call.sequence.rows = 0;
  call.args.q = nullptr;
  EXPECT_EQ(call.sentence(), "no error");
  call.args.sequences = {};
  EXPECT_EQ(call.sentence(), "no error");
  EXPECT_EQ(call.out, Values(64, 0.0f));
}

}  // namespace
}  // namespace hone::kernels
