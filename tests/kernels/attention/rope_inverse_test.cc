// SPDX-License-Identifier: Apache-2.0
// What training needs of RoPE: other rows than the input's, tables shorter than the rows, and the
// inverse, which is the gradient.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/attention/rope.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kEpsilon;
using test::random_values;
using testing::HasSubstr;
using Values = std::vector<float>;

// Heads [rows, heads, head_dim] inside rows that are `gap` floats longer.
struct Turn {
  Index rows = 12, positions = 4, heads = 3, head_dim = 8, gap = 0;
  Values cos, sin;

  explicit Turn(Index dim, Index between = 0) : head_dim(dim), gap(between) {
    for (Index position = 0; position < positions; ++position) {
      for (Index i = 0; i < dim / 2; ++i) {
        const double angle = static_cast<double>(position) / (1.0 + static_cast<double>(i));
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }
  Index stride() const { return heads * head_dim + gap; }
  RopeArgs args(const float* in, float* out, bool inverse = false) const {
    return {.x = in,
            .x_stride = stride(),
            .y = out,
            .y_stride = stride(),
            .rows = rows,
            .heads = heads,
            .head_dim = head_dim,
            .dims = head_dim,
            .positions = positions,
            .cosine = cos.data(),
            .sine = sin.data(),
            .inverse = inverse};
  }
  Values apply(const Values& in, bool inverse = false,
               Executor& executor = serial_executor()) const {
    Values out = in;
    apply_rope(args(in.data(), out.data(), inverse), executor);
    return out;
  }
};

TEST(RopeInverse, matches_the_reference_keeps_norms_and_turns_back) {
  for (const Index dim : {2, 10, 32, 36, 64}) {
    const Turn turn(dim);
    const Values in = random_values(turn.rows * turn.stride(), 11);
    Values want(in.size());
    const Values out = turn.apply(in), back = turn.apply(out, true);
    apply_rope_ref(turn.args(in.data(), want.data()));
    test::expect_close(out, want, 2 * kEpsilon, "rope");
    apply_rope_ref(turn.args(out.data(), want.data(), true));
    test::expect_close(back, want, 2 * kEpsilon, "inverse");
    test::expect_close(back, in, 4 * kEpsilon, "turned back");
    for (std::size_t head = 0; head < in.size(); head += static_cast<std::size_t>(dim)) {
      const auto norm = [&](const Values& v) {
        const auto begin = v.begin() + static_cast<Index>(head);
        return std::inner_product(begin, begin + dim, begin, 0.0);
      };
      EXPECT_NEAR(norm(out), norm(in), 16 * kEpsilon * norm(in));
    }
  }
}

TEST(RopeInverse, both_pairings_turn_and_copy_into_rows_of_another_stride) {
  const Turn turn(20, 3);
  const Values in = random_values(turn.rows * turn.stride(), 6);
  for (const RopePairs pairs : {RopePairs::HalfSplit, RopePairs::Adjacent}) {
    for (const Index dims : {0, 12, 20}) {
      Values in_place = in, out(static_cast<std::size_t>(turn.rows * 70), 9.0f);
      RopeArgs args = turn.args(in.data(), out.data());
      args.y_stride = 70, args.dims = dims, args.pairs = pairs;
      apply_rope(args);
      args.x = args.y = in_place.data(), args.y_stride = args.x_stride;
      apply_rope(args);
      for (Index row = 0; row < turn.rows; ++row) {
        const auto begin = out.begin() + row * 70;
        EXPECT_TRUE(std::equal(begin, begin + 60, in_place.begin() + row * turn.stride())) << row;
        EXPECT_EQ(std::count(begin + 60, begin + 70, 9.0f), 10) << row;
      }
    }
  }
}

// ⟨R x, y⟩ = ⟨x, R⁻¹ y⟩: what makes the inverse the gradient.
TEST(RopeInverse, the_inverse_is_the_transpose) {
  for (const Index dim : {2, 6, 16, 34, 64}) {
    const Turn turn(dim);
    const Values x = random_values(turn.rows * turn.stride(), 1);
    const Values y = random_values(turn.rows * turn.stride(), 2);
    const auto dot = [](const Values& a, const Values& b) {
      return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    };
    EXPECT_NEAR(dot(turn.apply(x), y), dot(x, turn.apply(y, true)), 1e-4) << dim;
  }
}

TEST(RopeInverse, rows_take_the_angle_of_their_position_modulo_the_length) {
  Turn turn(12);
  turn.rows = 8;  // of 4 positions: two sequences
  Values x = random_values(4 * turn.stride(), 3);
  x.insert(x.end(), x.begin(), x.begin() + 4 * turn.stride());
  const Values out = turn.apply(x);
  EXPECT_TRUE(
      std::equal(out.begin(), out.begin() + 4 * turn.stride(), out.begin() + 4 * turn.stride()));
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + turn.stride(), x.begin()))
      << "position 0 turns by nothing";
}

TEST(RopeInverse, works_in_place_and_leaves_what_lies_between_rows) {
  for (const Index dim : {2, 10, 32, 36}) {
    const Turn turn(dim, 5);
    const Values x = random_values(turn.rows * turn.stride(), 4);
    const Values out = turn.apply(x);
    Values in_place = x;
    apply_rope(turn.args(in_place.data(), in_place.data()));
    EXPECT_EQ(in_place, out);
    for (Index row = 0; row < turn.rows; ++row) {
      for (Index i = turn.heads * dim; i < turn.stride(); ++i) {
        const auto at = static_cast<std::size_t>(row * turn.stride() + i);
        ASSERT_EQ(out[at], x[at]) << row << " " << i;
      }
    }
  }
}

TEST(RopeInverse, has_the_same_bits_on_any_number_of_threads) {
  Turn turn(64);
  turn.rows = 2000;
  const Values x = random_values(turn.rows * turn.stride(), 5);
  const Values one = turn.apply(x);
  ThreadPool pool(3);
  EXPECT_EQ(turn.apply(x, false, pool), one);
}

TEST(RopeInverse, names_what_it_expected) {
  const auto sentence = [](Index positions, Index head_dim) {
    return test::error_of([&] {
      apply_rope(
          {.rows = 1, .heads = 1, .head_dim = head_dim, .dims = head_dim, .positions = positions});
    });
  };
  EXPECT_THAT(sentence(1, 5), HasSubstr("[rope] expected an even number of dims up to 5, got 5"));
  EXPECT_THAT(sentence(0, 4), HasSubstr("[rope] expected positions > 0, got 0"));
  EXPECT_THAT(sentence(-1, 4), HasSubstr("got -1"));
  apply_rope({.x_stride = 4, .y_stride = 4, .heads = 1, .head_dim = 4, .dims = 4, .positions = 1});
}

}  // namespace
}  // namespace hone::kernels
