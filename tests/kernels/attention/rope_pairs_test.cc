// SPDX-License-Identifier: Apache-2.0
// The two pairings are one rotation seen through a permutation of a head's elements.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "hone/kernels/attention/rope.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::random_values;

struct Turn {
  Index rows, heads, head_dim, dims;
  std::vector<float> cosine, sine;

  Turn(Index rows_in, Index heads_in, Index head_dim_in, Index dims_in, Index first)
      : rows(rows_in), heads(heads_in), head_dim(head_dim_in), dims(dims_in) {
    std::vector<double> inverse;
    for (Index i = 0; i < dims / 2; ++i)
      inverse.push_back(std::pow(10000.0, -2 * static_cast<double>(i) / static_cast<double>(dims)));
    cosine.resize(static_cast<std::size_t>(rows * dims / 2));
    sine.resize(cosine.size());
    fill_rope_tables(inverse, 1, first, cosine, sine);
  }
  void apply(std::vector<float>& x, RopePairs pairs) const {
    apply_rope({.x = x.data(),
                .x_stride = heads * head_dim,
                .y = x.data(),
                .y_stride = heads * head_dim,
                .rows = rows,
                .heads = heads,
                .head_dim = head_dim,
                .dims = dims,
                .pairs = pairs,
                .positions = rows,
                .cosine = cosine.data(),
                .sine = sine.data()});
  }
};

// Where element i of a head with pairs (i, i + dims/2) lies in one with pairs (2i, 2i + 1).
Index adjacent_place(Index i, Index dims) {
  if (i >= dims) return i;
  return i < dims / 2 ? 2 * i : 2 * (i - dims / 2) + 1;
}

std::vector<float> to_adjacent(const std::vector<float>& x, const Turn& turn) {
  std::vector<float> out(x.size());
  for (Index head = 0; head < turn.rows * turn.heads; ++head) {
    for (Index i = 0; i < turn.head_dim; ++i) {
      out[static_cast<std::size_t>(head * turn.head_dim + adjacent_place(i, turn.dims))] =
          x[static_cast<std::size_t>(head * turn.head_dim + i)];
    }
  }
  return out;
}

TEST(RopePairs, both_pairings_are_a_permutation_of_each_other) {
  for (const Index head_dim : {2, 4, 10, 34, 64, 96, 128}) {
    for (const Index dims : {Index{2}, head_dim / 4 * 2, head_dim}) {
      if (dims < 2) continue;
      for (const Index rows : {1, 5}) {
        const Turn turn(rows, 3, head_dim, dims, 77);
        auto half = random_values(rows * 3 * head_dim, 1);
        auto adjacent = to_adjacent(half, turn);
        turn.apply(half, RopePairs::HalfSplit);
        turn.apply(adjacent, RopePairs::Adjacent);
        const auto expected = to_adjacent(half, turn);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          // Two products of values below 1 and their sum, fused or not.
          ASSERT_NEAR(adjacent[i], expected[i], 2.5e-7) << head_dim << " " << dims << " at " << i;
        }
      }
    }
  }
}

TEST(RopePairs, elements_that_do_not_turn_keep_their_bits) {
  for (const RopePairs pairs : {RopePairs::HalfSplit, RopePairs::Adjacent}) {
    for (const Index dims : {0, 2, 16, 30, 62}) {
      const Turn turn(3, 2, 64, dims, 500);
      const auto before = random_values(3 * 2 * 64, 2);
      auto after = before;
      turn.apply(after, pairs);
      Index moved = 0;
      for (std::size_t i = 0; i < after.size(); ++i) {
        const bool turns = static_cast<Index>(i) % 64 < dims;
        ASSERT_TRUE(turns || after[i] == before[i]) << i;
        moved += after[i] != before[i];
      }
      EXPECT_GE(moved, dims * 3);  // of dims * 6
    }
  }
}

TEST(RopePairs, position_zero_changes_nothing_and_turning_back_restores) {
  for (const RopePairs pairs : {RopePairs::HalfSplit, RopePairs::Adjacent}) {
    const auto before = random_values(4 * 48, 3);
    auto x = before;
    Turn(1, 4, 48, 48, 0).apply(x, pairs);
    EXPECT_EQ(x, before);
    Turn turn(1, 4, 48, 48, 1234);
    turn.apply(x, pairs);
    for (float& value : turn.sine) value = -value;
    turn.apply(x, pairs);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], before[i], 5e-7);
  }
}

TEST(RopePairs, turns_add_up_and_keep_the_length_of_every_pair) {
  const auto before = random_values(64, 4);
  auto twice = before, once = before;
  Turn(1, 1, 64, 64, 300).apply(twice, RopePairs::HalfSplit);
  Turn(1, 1, 64, 64, 45).apply(twice, RopePairs::HalfSplit);
  Turn(1, 1, 64, 64, 345).apply(once, RopePairs::HalfSplit);
  for (std::size_t i = 0; i < 64; ++i) ASSERT_NEAR(twice[i], once[i], 1e-6);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_NEAR(std::hypot(once[i], once[i + 32]), std::hypot(before[i], before[i + 32]), 5e-7);
  }
}

TEST(RopeTables, are_the_rounded_cosines_at_positions_of_a_million) {
  const std::vector<double> inverse{1, 0.1, 1e-4};
  std::vector<float> cosine(6), sine(6);
  fill_rope_tables(inverse, 1.25, 1'000'000, cosine, sine);
  for (std::size_t row = 0; row < 2; ++row) {
    for (std::size_t i = 0; i < 3; ++i) {
      const double angle = (1e6 + static_cast<double>(row)) * inverse[i];
      EXPECT_EQ(cosine[row * 3 + i], static_cast<float>(std::cos(angle) * 1.25));
      EXPECT_EQ(sine[row * 3 + i], static_cast<float>(std::sin(angle) * 1.25));
    }
  }
}

}  // namespace
}  // namespace hone::kernels
