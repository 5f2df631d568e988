// SPDX-License-Identifier: Apache-2.0
// Values worked out by hand, and loops over the definition with autograd.
#include "hone/train/loss/triplet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "hone/train/amp/autocast_guard.h"

#include "tests/support/error_of.h"
#include "tests/train/loss/rows.h"

namespace hone::loss {
namespace {

using hone::test::refusal;
using test::evaluate;
using test::Evaluated;
using test::expect_gradient;
using test::expect_same;
using test::labels;
using test::points;
using test::random;
using testing::HasSubstr;
using torch::Tensor;

test::Loss triplet(const std::vector<Index>& targets, double margin) {
  return [=](const Tensor& features) {
    return batch_hard_triplet(features, labels(targets), {margin}).loss;
  };
}

double active_share(const Tensor& features, const std::vector<Index>& targets, double margin) {
  return batch_hard_triplet(features, labels(targets), {margin}).active_share.item<double>();
}

Tensor distance(const Tensor& a, const Tensor& b) {
  const Tensor apart = a - b, squares = apart.dot(apart);
  return squares.item<double>() == 0 ? squares.detach() : squares.sqrt();
}

struct ByLoops {
  Tensor loss;
  double active_share;
};
ByLoops triplet_by_loops(const Tensor& features, const std::vector<Index>& targets, double margin) {
  const std::vector<Tensor> z = test::unit_by_loops(features);
  const Index rows = std::ssize(z);
  Tensor total = (features * 0).sum();
  Index anchors = 0, active = 0;
  for (Index a = 0; a < rows; ++a) {
    Tensor positive, negative;
    for (Index other = 0; other < rows; ++other) {
      if (other == a) continue;
      const Tensor d = distance(z[a], z[other]);
      if (targets[other] != targets[a]) {
        if (!negative.defined() || d.item<double>() < negative.item<double>()) negative = d;
      } else if (!positive.defined() || d.item<double>() > positive.item<double>()) {
        positive = d;
      }
    }
    if (!positive.defined() || !negative.defined()) continue;
    ++anchors;
    const Tensor excess = margin + positive - negative;
    if (excess.item<double>() <= 0) continue;
    ++active;
    total = total + excess;
  }
  return {total / anchors, static_cast<double>(active) / static_cast<double>(anchors)};
}

// The nearest negative is as far as the farthest positive.
TEST(BatchHardTriplet, of_a_square_is_the_margin) {
  const Tensor square = points({1, 0, 0, 1, -1, 0, 0, -1});
  for (const double margin : {0.0, 0.2, 3.0}) {
    EXPECT_NEAR(triplet({0, 0, 1, 1}, margin)(square).item<double>(), margin, 1e-15);
    EXPECT_EQ(active_share(square, {0, 0, 1, 1}, margin), margin > 0 ? 1 : 0);
  }
}

// Positives coincide, negatives are √2 away, and of two that tie the lower row is taken: row 0 is
// the anchor of a triplet and the negative of two.
TEST(BatchHardTriplet, gives_ties_to_the_lowest_row_and_no_gradient_to_equal_rows) {
  const Tensor rows = points({1, 0, 1, 0, 0, 1, 0, 1});
  const Evaluated got = evaluate(triplet({0, 0, 1, 1}, 2), rows);
  EXPECT_NEAR(got.value.item<double>(), 2 - std::sqrt(2.0), 1e-15);
  const double g = 1 / (4 * std::sqrt(2.0));
  expect_gradient(got.gradient, points({0, 3 * g, 0, g, 3 * g, 0, g, 0}));
  EXPECT_EQ(active_share(rows, {0, 0, 1, 1}, 2), 1);
  EXPECT_EQ(triplet({0, 0, 1, 1}, 0.2)(rows).item<double>(), 0);
  EXPECT_EQ(active_share(rows, {0, 0, 1, 1}, 0.2), 0);
}

// Row 0 has its positive at 1 and its negative at 2, and no active hinge; row 1, whose norm counts
// as 1e-12, has both at 1; row 2 has no positive.
TEST(BatchHardTriplet, takes_a_row_of_zeros) {
  const Tensor rows = points({1, 0, 0, 0, -1, 0});
  const Evaluated got = evaluate(triplet({0, 0, 1}, 0.2), rows);
  EXPECT_NEAR(got.value.item<double>(), 0.1, 1e-15);
  EXPECT_EQ(active_share(rows, {0, 0, 1}, 0.2), 0.5);
  const Tensor scale = at::tensor({1.0, 1e-12, 1.0}, at::kDouble).unsqueeze(1);
  expect_gradient(got.gradient * scale, points({0, 0, -1, 0, 0, 0}));
}

TEST(BatchHardTriplet, and_its_gradient_are_those_of_loops) {
  at::manual_seed(31);
  const std::vector<std::vector<Index>> cases{{0, 1, 0},
                                              {0, 1, 2, 0, 1, 2},
                                              {5, 1, 1, 9, 1, 5, 2, 1},
                                              {-1, 1L << 40, -1, 1L << 40, 0, 0, 0}};
  Index partly_active = 0;
  for (const auto& targets : cases) {
    for (const double margin : {0.0, 0.2, 2.5}) {
      for (const Index dim : {2, 5, 17}) {
        const Tensor features = random({std::ssize(targets), dim});
        const ByLoops by_rows = triplet_by_loops(features, targets, margin);
        const Evaluated want = evaluate(
            [&](const Tensor& x) { return triplet_by_loops(x, targets, margin).loss; }, features);
        expect_same(evaluate(triplet(targets, margin), features), want,
                    concat(targets.size(), " ", margin, " ", dim));
        EXPECT_NEAR(active_share(features, targets, margin), by_rows.active_share, 1e-15);
        partly_active += by_rows.active_share > 0 && by_rows.active_share < 1 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(partly_active, 0);
}

TEST(BatchHardTriplet, takes_equal_rows) {
  at::manual_seed(32);
  const Tensor some = random({3, 6});
  const Tensor features = at::cat({some, some, some.slice(0, 0, 1)});
  const std::vector<Index> targets{0, 1, 2, 0, 2, 1, 1};  // of the same class and of another one
  const Evaluated want =
      evaluate([&](const Tensor& x) { return triplet_by_loops(x, targets, 0.3).loss; }, features);
  const Evaluated got = evaluate(triplet(targets, 0.3), features);
  EXPECT_LE(test::worst(got.value, want.value), 1e-12);
  EXPECT_TRUE(at::isfinite(got.gradient).all().item<bool>());
  const Tensor ones = at::ones({4, 3}, at::kDouble);
  const Evaluated equal = evaluate(triplet({0, 0, 1, 1}, 0.2), ones);
  EXPECT_NEAR(equal.value.item<double>(), 0.2, 1e-15);
  expect_gradient(equal.gradient, at::zeros_like(ones));
}

TEST(BatchHardTriplet, depends_on_directions_and_not_on_their_order) {
  at::manual_seed(33);
  test::expect_invariant(
      [](const Tensor& x, const Tensor& targets) { return batch_hard_triplet(x, targets).loss; },
      random({9, 7}), labels({0, 1, 2, 0, 1, 2, 0, 0, 8}));
}

TEST(BatchHardTriplet, is_zero_without_anchors) {
  at::manual_seed(34);
  const auto expect_no_anchor = [](const std::vector<Index>& targets, const Tensor& features) {
    test::expect_nothing(triplet(targets, 0.2), features);
    EXPECT_EQ(active_share(features, targets, 0.2), 0);
  };
  expect_no_anchor({0, 1, 2, 3}, random({4, 3}));
  expect_no_anchor({6, 6, 6, 6}, random({4, 3}));
  expect_no_anchor({6, 6}, at::zeros({2, 3}));
  expect_no_anchor({5}, random({1, 3}));
}

// Two unit rows, 1 away from their positives and from the nearest negatives, which are rows of
// zeros; and four rows of zeros, 1 away from a unit row of their class and 0 from a negative.
TEST(BatchHardTriplet, has_finite_gradients_where_rows_are_zero) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Tensor features = at::cat({at::eye(2, 4), at::zeros({4, 4})}).to(type);
    const Evaluated got = evaluate(triplet({0, 1, 0, 1, 0, 1}, 0.2), features);
    EXPECT_NEAR(got.value.item<double>(), 0.2 + 4.0 / 6, 1e-6);
    EXPECT_TRUE(at::isfinite(got.gradient).all().item<bool>());
  }
}

TEST(BatchHardTriplet, computes_in_fp32_under_autocast) {
  at::manual_seed(36);
  const Tensor lowered = at::randn({12, 33}).to(at::kBFloat16), wide = lowered.to(at::kFloat);
  const test::Loss loss = triplet({0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 3, 4}, 0.2);
  const Evaluated want = evaluate(loss, wide);
  EXPECT_EQ(want.value.scalar_type(), at::kFloat);
  EXPECT_EQ(loss(wide.to(at::kDouble)).scalar_type(), at::kDouble);
  EXPECT_NEAR(want.value.item<double>(), loss(wide.to(at::kDouble)).item<double>(), 1e-6);
  const Evaluated got = evaluate(loss, lowered);
  EXPECT_TRUE(got.value.equal(want.value));
  EXPECT_TRUE(got.gradient.equal(want.gradient.to(at::kBFloat16)));
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const Tensor leaf = wide.clone().requires_grad_();
    const amp::AutocastGuard autocast(at::kCPU, type);
    const Tensor value = loss(leaf);
    value.backward();
    EXPECT_TRUE(value.equal(want.value));
    EXPECT_TRUE(leaf.grad().equal(want.gradient));
  }
}

TEST(BatchHardTriplet, has_no_gradient_of_the_share_and_reads_nothing_on_the_host) {
  at::manual_seed(37);
  const Tensor features = random({4, 3}).requires_grad_();
  EXPECT_FALSE(batch_hard_triplet(features, labels({0, 1, 0, 1})).active_share.requires_grad());
  test::expect_no_waiting(triplet({0, 1, 0, 1}, 0.2), features);
}

TEST(BatchHardTriplet, refuses_by_name) {
  const auto refuse = [](const Tensor& features, const Tensor& targets, double margin,
                         const std::string& message) {
    EXPECT_THAT(refusal([&] { batch_hard_triplet(features, targets, {margin}); }),
                HasSubstr("[batch_hard_triplet] " + message));
  };
  const Tensor rows = at::ones({2, 3}), targets = labels({0, 1});
  refuse({}, targets, 0.2, "The features are an undefined tensor.");
  refuse(rows, {}, 0.2, "The targets are an undefined tensor.");
  refuse(rows.to(at::kBool), targets, 0.2, "expected features of a floating-point type, got Bool");
  refuse(at::ones({0, 3}), labels({}), 0.2,
         "expected features [rows, dim], neither of them 0, got [0, 3]");
  refuse(rows, at::zeros({2}), 0.2, "expected int64 targets, got Float");
  refuse(rows, labels({0, 1, 1}), 0.2, "expected targets [2], got [3]");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double margin : {-0.1, kInfinity, -kInfinity, std::nan("")}) {
    refuse(rows, targets, margin, concat("expected a finite margin of at least 0, got ", margin));
  }
}

}  // namespace
}  // namespace hone::loss
