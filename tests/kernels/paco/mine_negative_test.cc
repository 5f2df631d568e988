// SPDX-License-Identifier: Apache-2.0
// Negatives for the triplet loss by choices made by hand, by plain loops over the definition, and
// by properties: ties, masks, order of the pool, scale, values that are not finite.
#include "hone/kernels/paco/mine_negative.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "tests/kernels/paco/geometry_support.h"
#include "tests/support/resident_memory.h"
#include "tests/support/watched_executor.h"

namespace hone::kernels {
namespace {

using test::Doubles;
using test::kDoubleInfinity;
using test::kDoubleNan;
using test::Metric;
using test::normal_values;
using test::whole_values;
using test::zeros;
using testing::HasSubstr;
using Indices = std::vector<Index>;
using Flags = std::vector<std::uint8_t>;

struct Mined {
  Indices index;
  Flags found;
  bool operator==(const Mined&) const = default;
};

struct Mining {
  Metric metric;
  Index parts = 1;
  Doubles anchor = {}, positive_q = {}, pool = {};
  Indices owner = {}, pool_label = {}, anchor_label = {};
  MineMode mode = MineMode::SemiHard;
  Index top_m = 0;

  MineNegativeArgs args(Mined& out) const {
    out = {Indices(static_cast<std::size_t>(metric.batch * parts), -7),
           Flags(static_cast<std::size_t>(metric.batch * parts), 9)};
    return {.batch = metric.batch,
            .parts = parts,
            .rank = metric.rank,
            .dim = metric.dim,
            .pool_rows = static_cast<Index>(pool.size()) / metric.dim,
            .anchor = anchor.data(),
            .positive_q = positive_q.empty() ? nullptr : positive_q.data(),
            .pool = pool.data(),
            .owner = owner.empty() ? nullptr : owner.data(),
            .pool_label = pool_label.empty() ? nullptr : pool_label.data(),
            .anchor_label = anchor_label.empty() ? nullptr : anchor_label.data(),
            .factor = metric.factor.data(),
            .chol = metric.chol.data(),
            .delta = metric.delta.data(),
            .mode = mode,
            .top_m = top_m,
            .index = out.index.data(),
            .found = out.found.data()};
  }
};

Mined mine(const Mining& mining, Executor& executor = serial_executor()) {
  Mined out;
  mine_negative(mining.args(out), executor);
  return out;
}

Mined mine_by_definition(const Mining& mining) {
  Mined out;
  mine_negative_ref(mining.args(out));
  return out;
}

// Distances of every anchor to vectors of its own, [batch, parts, dim].
Doubles distances_between(const Metric& metric, const Doubles& a, const double* b,
                          bool by_definition) {
  Doubles x(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) x[i] = a[i] - b[i];
  test::Distances out;
  const RidgeDistanceArgs args = test::distance_args(metric, x, out);
  by_definition ? ridge_distance_ref(args) : ridge_distance(args);
  return out.q;
}

// Two views of random parts around a center for each image; the pool is all parts of both views,
// view 1 first, and a part's positive is the part of view 2 with its number.
Mining random_mining(Index batch, Index parts, Index dim, double delta, std::uint64_t seed) {
  const Doubles center = normal_values(batch * dim, seed, 0.3);
  Doubles z1 = normal_values(batch * parts * dim, seed + 1), z2 = z1;
  const Doubles noise = normal_values(batch * parts * dim, seed + 2, 0.5);
  for (std::size_t i = 0; i < z1.size(); ++i) {
    const auto row = static_cast<Index>(i) / dim;
    z1[i] += center[static_cast<std::size_t>(row / parts * dim + static_cast<Index>(i) % dim)];
    z2[i] = z1[i] + noise[i];
  }
  Mining mining{.metric = Metric(batch, 2 * (parts - 1), dim, test::factor_of(batch, parts, z1, z2),
                                 Doubles(static_cast<std::size_t>(batch), delta)),
                .parts = parts,
                .anchor = z1,
                .pool = z1};
  mining.positive_q = distances_between(mining.metric, z1, z2.data(), false);
  mining.pool.insert(mining.pool.end(), z2.begin(), z2.end());
  return mining;
}

void mask_owners(Mining& mining) {
  for (Index row = 0; row < 2 * mining.metric.batch * mining.parts; ++row)
    mining.owner.push_back(row / mining.parts % mining.metric.batch);
}

// Images b and b + 3 share a label.
void mask_labels(Mining& mining) {
  for (Index image = 0; image < mining.metric.batch; ++image)
    mining.anchor_label.push_back(100 + image % 3);
  for (Index row = 0; row < 2 * mining.metric.batch * mining.parts; ++row)
    mining.pool_label.push_back(100 + row / mining.parts % mining.metric.batch % 3);
}

// One anchor at zero with positive distance 3 and unit metric; the pool holds its distances.
Mining on_a_line(const Doubles& distances) {
  return {.metric = Metric(1, 0, 1, {}, {1}),
          .parts = 1,
          .anchor = {0},
          .positive_q = {9},
          .pool = distances};
}

double triplet_loss(double positive, double negative, double margin) {
  return std::max(0.0, positive - negative + margin);
}

TEST(MineNegative, takes_the_nearest_row_beyond_the_positive) {
  const Doubles pool{1, 2, 3, 3.1, 5};
  const Mined got = mine(on_a_line(pool));
  EXPECT_EQ(got.index, (Indices{3}));
  EXPECT_EQ(got.found, (Flags{1}));
  EXPECT_NEAR(triplet_loss(3, pool[static_cast<std::size_t>(got.index[0])], .2), .1, 1e-15);
}

TEST(MineNegative, takes_the_nearest_row_where_none_is_beyond_the_positive) {
  const Mined got = mine(on_a_line({2, 1}));
  EXPECT_EQ(got.index, (Indices{1}));
  EXPECT_NEAR(triplet_loss(3, 1, .2), 2.2, 1e-15);
}

TEST(MineNegative, a_row_as_far_as_the_positive_is_not_beyond_it) {
  EXPECT_EQ(mine(on_a_line({3, 7, 5})).index, (Indices{2}));
  EXPECT_EQ(mine(on_a_line({7.3, 3, -3, 1.7})).index, (Indices{0}));
  EXPECT_EQ(mine(on_a_line({3})).index, (Indices{0})) << "the nearest after all";
}

TEST(MineNegative, hardest_takes_the_nearest_row) {
  Mining mining = on_a_line({5, 2, 1, 3.1});
  mining.mode = MineMode::Hardest;
  mining.positive_q.clear();  // not read
  EXPECT_EQ(mine(mining).index, (Indices{2}));
}

TEST(MineNegative, without_a_row_that_is_allowed_finds_nothing) {
  Mining mining = on_a_line({});
  const Mined nothing{{0}, {0}};
  EXPECT_EQ(mine(mining), nothing);
  EXPECT_EQ(mine_by_definition(mining), nothing);
  mining = on_a_line({1, 2});
  mining.owner = {0, 0};
  EXPECT_EQ(mine(mining), nothing);
  mining.owner = {1, -1};
  mining.anchor_label = {4}, mining.pool_label = {4, 4};
  EXPECT_EQ(mine(mining), nothing);
  mining.top_m = 1;
  EXPECT_EQ(mine(mining), nothing);
}

TEST(MineNegative, with_top_m_only_the_largest_cosines_compete) {
  Mining mining{.metric = Metric(1, 0, 2, {}, {1}),
                .parts = 1,
                .anchor = {1, 0},
                .positive_q = {0.09},
                .pool = {10, 0, .9, .5}};
  for (const auto& run : {mine_by_definition, +[](const Mining& m) { return mine(m); }}) {
    mining.top_m = 0;
    EXPECT_EQ(run(mining).index, (Indices{1}));
    mining.top_m = 1;
    EXPECT_EQ(run(mining).index, (Indices{0}));
  }
  const double near = std::sqrt(.1 * .1 + .5 * .5);
  EXPECT_NEAR(near, .5099020, 5e-8);
  EXPECT_NEAR(triplet_loss(.3, near, .5), .2900980, 5e-8);
  EXPECT_EQ(triplet_loss(.3, 9, .5), 0);
}

TEST(MineNegative, with_top_m_the_first_of_equal_cosines_compete) {
  const Mining mining{.metric = Metric(1, 0, 2, {}, {1}),
                      .parts = 1,
                      .anchor = {1, 0},
                      .pool = {0, 5, 0, 1, 9, 0},
                      .mode = MineMode::Hardest,
                      .top_m = 2};
  EXPECT_EQ(mine(mining).index, (Indices{0})) << "row 1 is nearer, but its cosine is that of row 0";
  EXPECT_EQ(mine_by_definition(mining).index, (Indices{0}));
}

TEST(MineNegative, equals_plain_loops_over_the_definition) {
  std::uint64_t seed = 1;
  for (const auto& [batch, parts, dim] : {std::tuple<Index, Index, Index>{8, 4, 64},
                                          {3, 2, 2},
                                          {5, 3, 7},
                                          {20, 4, 16},
                                          {2, 1, 5},
                                          {4, 8, 33},
                                          {2, 20, 50},
                                          {1, 4, 64},
                                          {7, 4, 3}}) {
    for (const double delta : {0.0201, 1.0}) {
      for (const int masks : {0, 1, 2, 3}) {
        Mining mining = random_mining(batch, parts, dim, delta, seed += 10);
        if ((masks & 1) != 0) mask_owners(mining);
        if ((masks & 2) != 0) mask_labels(mining);
        for (const MineMode mode : {MineMode::SemiHard, MineMode::Hardest}) {
          for (const Index top_m : {0, 1, 5, 32, 100000}) {
            mining.mode = mode, mining.top_m = top_m;
            Mining dense = mining;  // where a positive is in the pool, its distance is equal
            dense.positive_q = distances_between(dense.metric, dense.anchor,
                                                 dense.pool.data() + batch * parts * dim, true);
            ASSERT_EQ(mine(mining), mine_by_definition(dense))
                << batch << "x" << parts << "x" << dim << " delta " << delta << " masks " << masks
                << " top_m " << top_m << (mode == MineMode::Hardest ? " hardest" : " semi-hard");
          }
        }
      }
    }
  }
}

// The pool holds the positive, whose distance is positive_q up to rounding. It is beyond itself in
// neither form. Small deltas make the Woodbury form cancel.
TEST(MineNegative, never_takes_the_positive_for_a_row_beyond_it) {
  for (const double delta : {1e-7, 2e-5, 0.02, 1.0}) {
    for (const Index top_m : {0, 40}) {
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        Mining mining = random_mining(6, 4, 24, delta, 1000 + seed * 10);
        mining.top_m = top_m;
        const Mined got = mine(mining);
        for (std::size_t at = 0; at < 24; ++at)
          ASSERT_NE(got.index[at], static_cast<Index>(24 + at)) << delta << " seed " << seed;
      }
    }
  }
}

TEST(MineNegative, of_equal_rows_takes_the_first) {
  const Index rows = 200;
  for (const Index top_m : {0, 150}) {
    for (const MineMode mode : {MineMode::SemiHard, MineMode::Hardest}) {
      Mining mining = random_mining(2, 4, 11, 0.1, 50);
      mining.pool.resize(11 * rows);
      for (std::size_t i = 11; i < mining.pool.size(); ++i) mining.pool[i] = mining.pool[i - 11];
      mining.mode = mode, mining.top_m = top_m;
      EXPECT_EQ(mine(mining).index, Indices(8, 0));
      for (const Index first : {5, 64, 199}) {
        mining.owner = Indices(rows, 1);
        std::fill(mining.owner.begin() + first, mining.owner.end(), 7);
        const Mined got = mine(mining);
        for (std::size_t at = 4; at < 8; ++at) EXPECT_EQ(got.index[at], first);
      }
      mining.owner.clear();
    }
  }
}

TEST(MineNegative, finds_the_same_vector_wherever_it_lies_in_the_pool) {
  Mining mining = random_mining(5, 4, 19, 0.5, 60);
  const Mined before = mine(mining);
  const Index rows = 40, dim = 19;
  Doubles turned;
  for (Index row = 0; row < rows; ++row) {
    const double* from = mining.pool.data() + (row + 17) % rows * dim;
    turned.insert(turned.end(), from, from + dim);
  }
  mining.pool = turned;
  const Mined after = mine(mining);
  for (std::size_t at = 0; at < 20; ++at)
    EXPECT_EQ((after.index[at] + 17) % rows, before.index[at]);
}

TEST(MineNegative, ignores_a_shift_and_the_scale_of_all_parts) {
  Mining mining = random_mining(6, 4, 30, 0.25, 70);
  mask_owners(mining);
  const Mined want = mine(mining);
  Mining far = mining;
  for (Doubles* values : {&far.anchor, &far.pool})
    for (double& value : *values) value += 1e5;
  EXPECT_EQ(mine(far), want);
  Mining large = mining;
  for (Doubles* values : {&large.anchor, &large.pool, &large.metric.factor, &large.metric.chol})
    for (double& value : *values) value *= 1024;
  for (double& value : large.metric.delta) value *= 1024 * 1024;
  EXPECT_EQ(mine(large), want);
}

TEST(MineNegative, is_the_same_for_any_number_of_workers) {
  ThreadPool pool(7);
  for (const Index top_m : {0, 32}) {
    Mining mining = random_mining(40, 4, 16, 0.5, 80);
    mask_owners(mining);
    mining.top_m = top_m;
    EXPECT_EQ(mine(mining, pool), mine(mining));
  }
}

TEST(MineNegativeHostile, rows_that_are_not_finite_are_passed_over) {
  for (const Index top_m : {0, 30}) {
    Mining mining = random_mining(5, 4, 9, 0.5, 90);
    mining.top_m = top_m;
    const Mined clean = mine(mining);
    const Index rows = 40;
    for (const double bad : {kDoubleNan, kDoubleInfinity, -kDoubleInfinity}) {
      Mining with_bad = mining;
      for (Index extra = 0; extra < 3; ++extra) {
        const Doubles row = normal_values(9, 91);
        with_bad.pool.insert(with_bad.pool.end(), row.begin(), row.end());
        with_bad.pool[static_cast<std::size_t>((rows + extra) * 9 + 4 * extra)] = bad;
      }
      EXPECT_EQ(mine(with_bad), clean) << bad;
    }
    Mining only_bad = mining;
    only_bad.pool.assign(only_bad.pool.size(), kDoubleNan);
    EXPECT_EQ(mine(only_bad), (Mined{Indices(20, 0), Flags(20, 0)}));
  }
}

TEST(MineNegativeHostile, an_anchor_or_metric_that_is_not_finite_finds_nothing) {
  for (const Index top_m : {0, 10}) {
    Mining mining = random_mining(4, 3, 8, 0.5, 100);
    mining.top_m = top_m;
    Mined want = mine(mining);
    mining.anchor[8 * 2 + 5] = kDoubleNan;             // part 2 of image 0
    mining.anchor[8 * 4 + 5] = kDoubleInfinity;        // part 1 of image 1
    mining.metric.factor[2 * 4 * 8 + 1] = kDoubleNan;  // image 2
    for (std::size_t i = 0; i < 16; ++i) mining.metric.chol[2 * 16 + i] = kDoubleNan;
    for (const std::size_t lost : {2, 4, 6, 7, 8}) want.index[lost] = 0, want.found[lost] = 0;
    EXPECT_EQ(mine(mining), want);
  }
}

TEST(MineNegativeHostile, nothing_is_beyond_a_positive_that_is_not_finite) {
  for (const Index top_m : {0, 10}) {
    Mining mining = random_mining(4, 3, 8, 0.5, 110);
    mining.top_m = top_m;
    mining.mode = MineMode::Hardest;
    const Mined want = mine(mining);
    mining.mode = MineMode::SemiHard;
    for (const double bad : {kDoubleNan, kDoubleInfinity}) {
      mining.positive_q.assign(12, bad);
      EXPECT_EQ(mine(mining), want);
    }
  }
}

TEST(MineNegativeHostile, equal_parts_everywhere_find_the_first_row) {
  Mining mining = random_mining(3, 4, 6, 0.5, 120);
  mining.metric = Metric(3, 6, 6, zeros(3 * 36), Doubles(3, 0.5));
  mining.anchor.assign(mining.anchor.size(), 0.1);
  mining.pool.assign(mining.pool.size(), 0.1);
  mining.positive_q.assign(12, 0.0);
  EXPECT_EQ(mine(mining), (Mined{Indices(12, 0), Flags(12, 1)}));
}

TEST(MineNegativeHostile, an_empty_batch_touches_nothing) {
  const Doubles pool(8);
  const auto mine_none = [&](Index rows) {
    return test::error_of([&] {
      mine_negative({.parts = 4, .rank = 6, .dim = 2, .pool_rows = rows, .pool = pool.data()});
    });
  };
  EXPECT_EQ(mine_none(4), "no error");
  EXPECT_EQ(mine_none(0), "no error");
}

TEST(MineNegativeHostile, names_the_argument_that_is_wrong) {
  const auto error = [](const MineNegativeArgs& args) {
    return test::error_of([&] { mine_negative(args); });
  };
  EXPECT_THAT(error({.batch = -1, .parts = 1, .dim = 1}),
              HasSubstr("[mine_negative] expected batch >= 0, got -1"));
  EXPECT_THAT(error({.parts = 0, .dim = 1}), HasSubstr("expected parts > 0, got 0"));
  EXPECT_THAT(error({.parts = 1, .rank = -2, .dim = 1}), HasSubstr("expected rank >= 0, got -2"));
  EXPECT_THAT(error({.parts = 1, .dim = 0}), HasSubstr("expected dim > 0, got 0"));
  EXPECT_THAT(error({.parts = 1, .dim = 1, .pool_rows = -4}),
              HasSubstr("expected pool_rows >= 0, got -4"));
  EXPECT_THAT(error({.parts = 1, .dim = 1, .top_m = -1}), HasSubstr("expected top_m >= 0, got -1"));
  const Index label = 0;
  EXPECT_THAT(error({.parts = 1, .dim = 1, .pool_label = &label}),
              HasSubstr("[mine_negative] Labels of the pool and of the anchors are given"));
  Mining mining = on_a_line({1});
  mining.metric.delta[0] = -1;
  EXPECT_THAT(test::error_of([&] { mine(mining); }),
              HasSubstr("[mine_negative] expected a positive, finite delta for image 0, got -1"));
}

Index bytes_in_use() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<Index>(info.uordblks + info.hblkhd);
}

TEST(MineNegative, allocates_as_much_as_it_tells) {
  Mining mining = random_mining(256, 4, 16, 0.5, 170);
  mask_owners(mining);
  mask_labels(mining);
  Mined out;
  const MineNegativeArgs args = mining.args(out);
  const Index before = bytes_in_use();
  Index most = before;
  hone::test::WatchedExecutor executor([&](int) { most = std::max(most, bytes_in_use()); });
  mine_negative(args, executor);
  const Index held = most - before;
  if (!hone::test::kCountsMemory) GTEST_SKIP() << "A sanitizer's allocator does not count.";
  // Pages and headers of the allocator, and what is allocated within a loop; each list of the pool
  // and each worker's scratch is larger.
  constexpr Index kMargin = 8192;
  ASSERT_EQ(args.pool_rows, 2048);
  EXPECT_NEAR(static_cast<double>(held),
              static_cast<double>(mine_negative_bytes(args, executor.workers())), kMargin);
}

TEST(MineNegativeHostile, reads_up_to_the_page_and_no_further) {
  for (const Index dim : {1, 3, 8, 21}) {
    for (const Index top_m : {0, 9}) {
      Mining mining = random_mining(3, 3, dim, 0.5, 130);
      mask_owners(mining);
      const test::GuardedDoubles anchor(mining.anchor), pool(mining.pool);
      const test::GuardedDoubles factor(mining.metric.factor), chol(mining.metric.chol);
      const test::GuardedDoubles positive(mining.positive_q), delta(mining.metric.delta);
      const test::GuardedDoubles owner(zeros(18)), index(zeros(9));  // of the size of Index
      std::copy(mining.owner.begin(), mining.owner.end(), reinterpret_cast<Index*>(owner.data()));
      mining.top_m = top_m;
      Mined out;
      MineNegativeArgs args = mining.args(out);
      args.anchor = anchor.data(), args.pool = pool.data(), args.factor = factor.data();
      args.chol = chol.data(), args.positive_q = positive.data(), args.delta = delta.data();
      args.owner = reinterpret_cast<const Index*>(owner.data());
      args.index = reinterpret_cast<Index*>(index.data());
      mine_negative(args);
      const Mined want = mine(mining);
      EXPECT_EQ(Indices(args.index, args.index + 9), want.index);
      EXPECT_EQ(out.found, want.found);
    }
  }
}

}  // namespace
}  // namespace hone::kernels
