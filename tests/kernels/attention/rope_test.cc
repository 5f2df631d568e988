// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/attention/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "hone/core/error.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

struct Tables {
  std::vector<float> cosine, sine;
};

Tables make_tables(Index dims, Index rows, Index first_position) {
  std::vector<double> inverse;
  for (Index i = 0; i < dims / 2; ++i) {
    inverse.push_back(std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(dims)));
  }
  Tables tables;
  tables.cosine.resize(inverse.size() * static_cast<std::size_t>(rows));
  tables.sine.resize(tables.cosine.size());
  fill_rope_tables(inverse, 1, first_position, tables.cosine, tables.sine);
  return tables;
}

TEST(Rope, a_quarter_turn_by_hand) {
  using Four = std::vector<float>;
  const Four x = {1, 2, 3, 4}, cosine = {0, 1}, sine = {1, 0};
  Four y(4), in_place = x;
  RopeArgs args{.x = x.data(),
                .x_stride = 4,
                .y = y.data(),
                .y_stride = 4,
                .rows = 1,
                .heads = 1,
                .head_dim = 4,
                .dims = 4,
                .pairs = RopePairs::HalfSplit,
                .positions = 1,
                .cosine = cosine.data(),
                .sine = sine.data()};
  apply_rope(args);
  EXPECT_EQ(y, (Four{-3, 2, 1, 4}));
  args.inverse = true;
  apply_rope(args);
  EXPECT_EQ(y, (Four{3, 2, -1, 4}));
  args.inverse = false;
  args.x = args.y = in_place.data();
  apply_rope(args);
  EXPECT_EQ(in_place, (Four{-3, 2, 1, 4}));
  in_place = x;
  args.pairs = RopePairs::Adjacent;
  apply_rope(args);
  EXPECT_EQ(in_place, (Four{-2, 1, 3, 4}));
}

TEST(Rope, matches_reference_for_both_pairings_and_partial_rotation) {
  for (const RopePairs pairs : {RopePairs::HalfSplit, RopePairs::Adjacent}) {
    for (const Index head_dim : {2, 8, 10, 34, 64, 128}) {
      for (const Index dims : {head_dim, head_dim / 4 * 2}) {
        const Index rows = 3, heads = 2, stride = heads * head_dim + 5;
        const Tables tables = make_tables(dims, rows, 1000);
        auto x = test::random_values(rows * stride, 5), expected = x;
        RopeArgs args{.x = x.data(),
                      .x_stride = stride,
                      .y = x.data(),
                      .y_stride = stride,
                      .rows = rows,
                      .heads = heads,
                      .head_dim = head_dim,
                      .dims = dims,
                      .pairs = pairs,
                      .positions = rows,
                      .cosine = tables.cosine.data(),
                      .sine = tables.sine.data()};
        apply_rope(args);
        args.x = args.y = expected.data();
        apply_rope_ref(args);
        for (std::size_t i = 0; i < x.size(); ++i) {
          ASSERT_NEAR(x[i], expected[i], 2.5e-7) << "head_dim " << head_dim << " dims " << dims;
        }
      }
    }
  }
}

TEST(Rope, keeps_lengths_and_relative_angles) {
  // q at position p and k at position p - 7 have the same product for every p.
  std::vector<double> products;
  for (const Index position : {7, 100, 5000}) {
    std::vector<float> q(64), k(64);
    for (std::size_t i = 0; i < 64; ++i) {
      q[i] = static_cast<float>(std::sin(static_cast<double>(i)));
      k[i] = static_cast<float>(std::cos(static_cast<double>(3 * i)));
    }
    for (auto [x, at] : {std::pair{&q, position}, std::pair{&k, position - 7}}) {
      const Tables tables = make_tables(64, 1, at);
      apply_rope({.x = x->data(),
                  .x_stride = 64,
                  .y = x->data(),
                  .y_stride = 64,
                  .rows = 1,
                  .heads = 1,
                  .head_dim = 64,
                  .dims = 64,
                  .positions = 1,
                  .cosine = tables.cosine.data(),
                  .sine = tables.sine.data()});
    }
    double product = 0;
    for (std::size_t i = 0; i < 64; ++i) product += static_cast<double>(q[i]) * k[i];
    products.push_back(product);
  }
  EXPECT_NEAR(products[1], products[0], 2e-5);
  EXPECT_NEAR(products[2], products[0], 2e-5);
}

TEST(Rope, refuses_odd_dims) {
  float x[4] = {};
  EXPECT_THROW(apply_rope({.x = x,
                           .x_stride = 4,
                           .y = x,
                           .y_stride = 4,
                           .rows = 1,
                           .heads = 1,
                           .head_dim = 4,
                           .dims = 3,
                           .positions = 1}),
               Error);
}

}  // namespace
}  // namespace hone::kernels
