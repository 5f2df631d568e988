// SPDX-License-Identifier: Apache-2.0
// The cache as memory: every element has one place, writes hit theirs and no other, f16 is the
// rounding of core/bf16.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/kernels/attention/kv_layout.h"
#include "hone/kernels/attention/rope.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::error_of;
using test::kInfinity;
using test::kNan;
using test::random_values;
using testing::HasSubstr;
using Values = std::vector<float>;

TEST(KvPlaces, every_key_and_value_of_a_block_has_a_place_of_its_own) {
  for (const Dtype dtype : {Dtype::Float16, Dtype::Float32}) {
    for (const Index dim : {1, 7, 16, 33}) {
      const KvLayout layout{.dtype = dtype, .layers = 3, .kv_heads = 2, .head_dim = dim};
      std::set<Index> places;
      for (Index layer = 0; layer < 3; ++layer) {
        for (Index head = 0; head < 2; ++head) {
          for (Index token = 0; token < kKvBlockTokens; ++token) {
            for (Index i = 0; i < dim; ++i) {
              const Index size = bytes_of(dtype);
              places.insert(layout.key_offset(layer, head) + layout.key_element(token, i) * size);
              places.insert(layout.value_offset(layer, head) + (token * dim + i) * size);
            }
          }
        }
      }
      EXPECT_EQ(static_cast<Index>(places.size()) * bytes_of(dtype), layout.block_bytes());
      EXPECT_EQ(*places.begin(), 0);
      EXPECT_EQ(*places.rbegin() + bytes_of(dtype), layout.block_bytes());
    }
  }
}

// Two layers, three heads, two blocks in reverse order, filled with a pattern that no write makes.
struct Memory {
  explicit Memory(Dtype dtype, Index dim)
      : layout{.dtype = dtype, .layers = 2, .kv_heads = 3, .head_dim = dim},
        bytes(static_cast<std::size_t>(2 * layout.block_bytes()), std::byte{0xa5}),
        blocks{bytes.data() + layout.block_bytes(), bytes.data()} {}
  KvView view() const { return {layout, 1, blocks}; }
  KvWriteArgs args(const Values& k, const Values& v, Index first, Index rows) const {
    return {.k = k.data(),
            .v = v.data(),
            .stride = 3 * layout.head_dim,
            .rows = rows,
            .first_position = first,
            .head_end = 3,
            .cache = view()};
  }
  float at(bool key, Index position, Index head, Index i) const {
    const Index block = position / 32, token = position % 32;
    const std::byte* plane = key ? view().keys(block, head) : view().values(block, head);
    const Index element = key ? layout.key_element(token, i) : token * layout.head_dim + i;
    if (layout.dtype == Dtype::Float16) {
      std::uint16_t bits;
      std::memcpy(&bits, plane + element * 2, 2);
      return f16_to_float(bits);
    }
    float value;
    std::memcpy(&value, plane + element * 4, 4);
    return value;
  }
  Index changed() const {
    Index count = 0;
    for (const std::byte byte : bytes) count += byte != std::byte{0xa5};
    return count;
  }

  KvLayout layout;
  std::vector<std::byte> bytes;
  std::vector<std::byte*> blocks;
};

float stored(Dtype dtype, float value) {
  return dtype == Dtype::Float16 ? f16_to_float(float_to_f16(value)) : value;
}

TEST(KvWriting, puts_rows_at_their_positions_across_blocks) {
  for (const Dtype dtype : {Dtype::Float16, Dtype::Float32}) {
    for (const Index dim : {1, 5, 16, 24, 100}) {
      Memory memory(dtype, dim);
      const Values k = random_values(10 * 3 * dim, 1, 9), v = random_values(10 * 3 * dim, 2, 9);
      write_kv(memory.args(k, v, 27, 10));  // 27 … 36
      for (Index row = 0; row < 10; ++row) {
        for (Index head = 0; head < 3; ++head) {
          for (Index i = 0; i < dim; ++i) {
            const auto from = static_cast<std::size_t>((row * 3 + head) * dim + i);
            ASSERT_EQ(memory.at(true, 27 + row, head, i), stored(dtype, k[from]));
            ASSERT_EQ(memory.at(false, 27 + row, head, i), stored(dtype, v[from]));
          }
        }
      }
      EXPECT_LE(memory.changed(), 10 * 3 * dim * 2 * bytes_of(dtype)) << "nothing else";
    }
  }
}

TEST(KvWriting, a_range_of_heads_leaves_the_others) {
  for (Index begin = 0; begin <= 3; ++begin) {
    for (Index end = begin; end <= 3; ++end) {
      Memory memory(Dtype::Float32, 8);
      const Values ones(4 * 24, 1.0f);
      KvWriteArgs args = memory.args(ones, ones, 2, 4);
      args.head_begin = begin;
      args.head_end = end;
      write_kv(args);
      for (Index head = 0; head < 3; ++head)
        EXPECT_EQ(memory.at(true, 3, head, 5) == 1.0f, begin <= head && head < end);
      EXPECT_EQ(memory.changed() == 0, begin == end);
    }
  }
}

TEST(KvWriting, f16_keeps_what_is_special) {
  const Values odd{0.0f,     -0.0f,   kInfinity, -kInfinity, kNan,     65504.0f,
                   65520.0f, -1e30f,  0x1p-24f,  1e-9f,      0x1p-14f, 1e-40f,
                   2049.0f,  2051.0f, 1.0f / 3,  -1.5f,      100.0f};
  const auto dim = static_cast<Index>(odd.size());
  Memory memory(Dtype::Float16, dim);
  Values row;
  for (int head = 0; head < 3; ++head) row.insert(row.end(), odd.begin(), odd.end());
  write_kv(memory.args(row, row, 0, 1));
  for (Index i = 0; i < dim; ++i) {
    for (const bool key : {true, false}) {
      const float got = memory.at(key, 0, 1, i), wanted = stored(Dtype::Float16, odd[i]);
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(got));
      } else {
        EXPECT_EQ(got, wanted) << odd[i];
        EXPECT_EQ(std::signbit(got), std::signbit(wanted)) << odd[i];
      }
    }
  }
  EXPECT_EQ(memory.at(true, 0, 0, 6), kInfinity) << "65520 is the first that rounds to infinity";
  EXPECT_EQ(memory.at(true, 0, 0, 5), 65504.0f);
}

TEST(KvWriting, reads_its_rows_up_to_the_page_and_no_further) {
  for (const Index dim : {1, 7, 16, 31}) {
    Memory memory(Dtype::Float16, dim);
    const test::GuardedFloats k(random_values(2 * 3 * dim, 1)), v(random_values(2 * 3 * dim, 2));
    write_kv({.k = k.data(),
              .v = v.data(),
              .stride = 3 * dim,
              .rows = 2,
              .head_end = 3,
              .cache = memory.view()});
    EXPECT_EQ(memory.at(false, 1, 2, dim - 1), stored(Dtype::Float16, v.data()[6 * dim - 1]));
  }
}

TEST(KvHostile, every_wrong_argument_is_named_and_nothing_is_written) {
  Memory memory(Dtype::Float16, 8);
  const Values row(24, 1.0f);
  const auto spoilt = [&](const auto& spoil) {
    KvWriteArgs args = memory.args(row, row, 0, 1);
    spoil(args);
    return error_of([&] { write_kv(args); });
  };
  EXPECT_THAT(spoilt([](auto& a) { a.cache.layout.dtype = Dtype::BFloat16; }),
              HasSubstr("[write_kv] expected an f16, f32 or i8 cache, got bf16"));
  EXPECT_THAT(spoilt([](auto& a) { a.cache.layout.head_dim = 0; }),
              HasSubstr("head_dim in 1…512, got 0"));
  EXPECT_THAT(spoilt([](auto& a) { a.cache.layout.head_dim = 513; }), HasSubstr("got 513"));
  EXPECT_THAT(spoilt([](auto& a) { a.head_end = 4; }), HasSubstr("heads within 3, got 4"));
  EXPECT_THAT(spoilt([](auto& a) { a.head_begin = -1; }), HasSubstr("heads within 3"));
  EXPECT_THAT(spoilt([](auto& a) { a.head_begin = 3, a.head_end = 2; }), HasSubstr("heads within"));
  EXPECT_THAT(spoilt([](auto& a) { a.first_position = 64; }),
              HasSubstr("expected 3 blocks, got 2"));
  EXPECT_THAT(spoilt([](auto& a) { a.first_position = -1; }), HasSubstr("blocks"));
  EXPECT_THAT(spoilt([](auto& a) { a.rows = -1; }), HasSubstr("blocks"));
  EXPECT_THAT(spoilt([](auto& a) { a.cache.layer = 2; }), HasSubstr("blocks"));
  EXPECT_EQ(memory.changed(), 0);
  EXPECT_EQ(spoilt([](auto& a) { a.rows = 0; }), "no error");
  EXPECT_EQ(memory.changed(), 0);
}

TEST(RopeHostile, every_wrong_argument_is_named_and_nothing_turns) {
  Values x(24, 1.0f);
  const Values table(16, 0.5f);
  const RopeArgs good{.x = x.data(),
                      .x_stride = 12,
                      .y = x.data(),
                      .y_stride = 12,
                      .rows = 2,
                      .heads = 2,
                      .head_dim = 6,
                      .dims = 4,
                      .positions = 2,
                      .cosine = table.data(),
                      .sine = table.data()};
  const auto spoilt = [&](const auto& spoil) {
    RopeArgs args = good;
    spoil(args);
    return error_of([&] { apply_rope(args); });
  };
  EXPECT_THAT(spoilt([](auto& a) { a.dims = 3; }),
              HasSubstr("[rope] expected an even number of dims up to 6, got 3"));
  EXPECT_THAT(spoilt([](auto& a) { a.dims = 8; }), HasSubstr("got 8"));
  EXPECT_THAT(spoilt([](auto& a) { a.dims = -2; }), HasSubstr("got -2"));
  EXPECT_THAT(spoilt([](auto& a) { a.x_stride = 11; }),
              HasSubstr("rows at least 12 apart, got 11 and 12"));
  EXPECT_THAT(spoilt([](auto& a) { a.y_stride = 11; }), HasSubstr("got 12 and 11"));
  EXPECT_THAT(spoilt([](auto& a) { a.rows = -1; }), HasSubstr("rows at least"));
  EXPECT_THAT(spoilt([](auto& a) { a.heads = -1; }), HasSubstr("rows at least"));
  RopeArgs none = good;
  none.rows = 0;
  apply_rope(none);
  none = good;
  none.dims = 0;
  apply_rope(none);
  EXPECT_EQ(x, Values(24, 1.0f));
}

TEST(RopeHostile, tables_must_be_whole_rows_of_one_size) {
  const std::vector<double> inverse{1, 0.5};
  Values four(4), three(3), six(6);
  EXPECT_THAT(error_of([&] { fill_rope_tables(inverse, 1, 0, four, six); }),
              HasSubstr("two tables of whole rows of 2, got 4 and 6"));
  EXPECT_THAT(error_of([&] {
                Values other(3);
                fill_rope_tables(inverse, 1, 0, three, other);
              }),
              HasSubstr("got 3 and 3"));
  EXPECT_THAT(error_of([&] { fill_rope_tables({}, 1, 0, four, four); }),
              HasSubstr("whole rows of 0"));
  fill_rope_tables({}, 1, 0, {}, {});
  fill_rope_tables(inverse, 1, 5, {}, {});
}

TEST(RopeHostile, a_value_that_is_not_finite_stays_in_its_pair) {
  for (const RopePairs pairs : {RopePairs::HalfSplit, RopePairs::Adjacent}) {
    for (Index bad = 0; bad < 20; ++bad) {
      Values x = random_values(20, 1);
      x[static_cast<std::size_t>(bad)] = kNan;
      const Values cosine(10, 0.6f), sine(10, 0.8f);
      apply_rope({.x = x.data(),
                  .x_stride = 20,
                  .y = x.data(),
                  .y_stride = 20,
                  .rows = 1,
                  .heads = 1,
                  .head_dim = 20,
                  .dims = 20,
                  .pairs = pairs,
                  .positions = 1,
                  .cosine = cosine.data(),
                  .sine = sine.data()});
      const Index partner = pairs == RopePairs::HalfSplit ? (bad + 10) % 20 : (bad ^ 1);
      for (Index i = 0; i < 20; ++i)
        ASSERT_EQ(std::isnan(x[static_cast<std::size_t>(i)]), i == bad || i == partner) << i;
    }
  }
}

}  // namespace
}  // namespace hone::kernels
