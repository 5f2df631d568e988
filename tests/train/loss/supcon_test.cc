// SPDX-License-Identifier: Apache-2.0
// Values worked out by hand, and loops over the definition with autograd.
#include "hone/train/loss/supcon.h"

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

test::Loss supcon(const std::vector<Index>& targets, double temperature) {
  return [=](const Tensor& features) {
    return supervised_contrastive(features, labels(targets), {temperature});
  };
}

Tensor supcon_by_loops(const Tensor& features, const std::vector<Index>& targets,
                       double temperature) {
  const std::vector<Tensor> z = test::unit_by_loops(features);
  const Index rows = std::ssize(z);
  Tensor total = at::zeros({}, at::kDouble);
  Index anchors = 0;
  for (Index i = 0; i < rows; ++i) {
    Tensor all = at::zeros({}, at::kDouble), logs = at::zeros({}, at::kDouble);
    for (Index a = 0; a < rows; ++a) {
      if (a != i) all = all + (z[i].dot(z[a]) / temperature).exp();
    }
    Index positives = 0;
    for (Index p = 0; p < rows; ++p) {
      if (p == i || targets[p] != targets[i]) continue;
      logs = logs + ((z[i].dot(z[p]) / temperature).exp() / all).log();
      ++positives;
    }
    if (positives == 0) continue;
    total = total - logs / positives;
    ++anchors;
  }
  return total / anchors;
}

// All similarities are 0: each of the three other rows has a third of the softmax.
TEST(SupervisedContrastive, of_orthogonal_rows_is_the_logarithm_of_their_number) {
  const Tensor lengths = at::tensor({1.0, 2.0, 4.0, 5.0}, at::kDouble);
  const Evaluated got = evaluate(supcon({0, 0, 1, 1}, 0.5), at::diag(lengths));
  EXPECT_NEAR(got.value.item<double>(), std::log(3.0), 1e-14);
  const double toward = -2.0 / 3, away = 1.0 / 3;  // 1 / (2 t) (1 / 3 - [same class])
  const Tensor by_unit = at::tensor({0.0, toward, away, away, toward, 0.0, away, away,  //
                                     away, away, 0.0, toward, away, away, toward, 0.0},
                                    at::kDouble);
  expect_gradient(got.gradient, by_unit.reshape({4, 4}) / lengths.unsqueeze(1));
}

TEST(SupervisedContrastive, of_two_orthogonal_classes_is_a_softplus) {
  for (const double t : {0.1, 0.5, 2.0}) {
    const Evaluated got = evaluate(supcon({7, 7, -3, -3}, t), points({1, 0, 1, 0, 0, 1, 0, 1}));
    EXPECT_NEAR(got.value.item<double>(), std::log1p(2 * std::exp(-1 / t)), 1e-14);
    const double share = 1 / (std::exp(1 / t) + 2);  // of each negative
    const double g = share / t;
    expect_gradient(got.gradient, points({0, g, 0, g, g, 0, g, 0}));
  }
}

// L_out: the mean over positives is outside of the logarithm. Inside, the loss would be ln 2.
TEST(SupervisedContrastive, averages_the_logarithms_of_positives) {
  const double anchor = std::log(std::exp(1.0) + 1) - 0.5;
  const Evaluated got = evaluate(supcon({4, 4, 4}, 1), points({1, 0, 1, 0, 0, 1}));
  EXPECT_NEAR(got.value.item<double>(), (2 * anchor + std::log(2.0)) / 3, 1e-14);
}

TEST(SupervisedContrastive, is_a_mean_over_rows_with_a_positive) {
  const Evaluated got = evaluate(supcon({0, 0, 1}, 0.1), at::eye(3, at::kDouble));
  EXPECT_NEAR(got.value.item<double>(), std::log(2.0), 1e-14);
}

TEST(SupervisedContrastive, and_its_gradient_are_those_of_loops) {
  at::manual_seed(21);
  const std::vector<std::vector<Index>> cases{{0, 0},
                                              {0, 1, 0},
                                              {3, 3, 3, 3, 3},
                                              {0, 1, 2, 0, 1, 2},
                                              {5, 1, 1, 9, 1, 5, 2, 1},
                                              {-1, 1L << 40, -1, 1L << 40, 0, 0, 0}};
  for (const auto& targets : cases) {
    for (const double temperature : {0.07, 0.5, 3.0}) {
      for (const Index dim : {2, 5, 17}) {
        const Tensor features = random({std::ssize(targets), dim});
        const Evaluated want = evaluate(
            [&](const Tensor& x) { return supcon_by_loops(x, targets, temperature); }, features);
        ASSERT_TRUE(at::isfinite(want.value).item<bool>());
        const Evaluated got = evaluate(supcon(targets, temperature), features);
        // For two rows, the softmax has one entry: nothing to learn.
        if (targets.size() == 2) {
          EXPECT_LE(got.value.abs().item<double>(), 1e-15);
          EXPECT_LE(got.gradient.abs().max().item<double>(), 1e-13);
        } else {
          expect_same(got, want, concat(targets.size(), " ", temperature, " ", dim));
        }
      }
    }
  }
}

TEST(SupervisedContrastive, takes_equal_rows) {
  at::manual_seed(22);
  const Tensor some = random({3, 6});
  const Tensor features = at::cat({some, some, some.slice(0, 0, 1)});
  const std::vector<Index> targets{0, 1, 2, 0, 2, 1, 1};  // of the same class and of another one
  const Evaluated want =
      evaluate([&](const Tensor& x) { return supcon_by_loops(x, targets, 0.2); }, features);
  expect_same(evaluate(supcon(targets, 0.2), features), want, "equal rows");
}

TEST(SupervisedContrastive, depends_on_directions_and_not_on_their_order) {
  at::manual_seed(23);
  test::expect_invariant(
      [](const Tensor& x, const Tensor& targets) { return supervised_contrastive(x, targets); },
      random({9, 7}), labels({0, 1, 2, 0, 1, 2, 0, 0, 8}));
}

TEST(SupervisedContrastive, is_zero_without_positives) {
  at::manual_seed(24);
  test::expect_nothing(supcon({0, 1, 2, 3}, 0.1), random({4, 3}));
  test::expect_nothing(supcon({5}, 0.1), random({1, 3}));
  test::expect_nothing(supcon({0, 1, 2, 3}, 0.1), at::zeros({4, 3}));
}

// All similarities are 0, and the second row is at the place where norms count as 1e-12.
TEST(SupervisedContrastive, has_the_gradient_of_a_division_by_the_least_norm_at_a_row_of_zeros) {
  const Evaluated got = evaluate(supcon({0, 0, 1}, 0.25), points({1, 0, 0, 0, 0, 1}));
  EXPECT_NEAR(got.value.item<double>(), std::log(2.0), 1e-14);
  const Tensor scale = at::tensor({1.0, 1e-12, 1.0}, at::kDouble).unsqueeze(1);
  expect_gradient(got.gradient * scale, points({0, 1, -2, 1, 1, 0}));
}

TEST(SupervisedContrastive, counts_norms_below_the_least_as_the_least) {
  at::manual_seed(25);
  Tensor features = random({5, 4});
  features[1] *= 1e-13;
  features[2] *= 1e-9;
  features[4].zero_();
  const std::vector<Index> targets{0, 1, 0, 1, 0};
  const Evaluated want =
      evaluate([&](const Tensor& x) { return supcon_by_loops(x, targets, 0.3); }, features);
  expect_same(evaluate(supcon(targets, 0.3), features), want, "short rows");
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Evaluated lowered = evaluate(supcon(targets, 0.3), features.to(type));
    EXPECT_TRUE(at::isfinite(lowered.gradient).all().item<bool>());
  }
}

// The positives are orthogonal and a negative is the same row: 1 / t + ln(1 + 2 exp(-1 / t)).
TEST(SupervisedContrastive, is_stable_at_low_temperatures) {
  const Tensor features = points({1, 0, 0, 1, 1, 0, 0, 1}).to(at::kFloat);
  for (const double t : {1e-2, 1e-3, 1e-20}) {
    const Evaluated got = evaluate(supcon({0, 0, 1, 1}, t), features);
    EXPECT_FLOAT_EQ(got.value.item<float>(), static_cast<float>(1 / t));
    // Each row is an anchor and a positive, among four anchors: (1 + 1) / (4 t).
    const double g = -0.5 / t;
    const Tensor want = points({0, g, g, 0, 0, g, g, 0});
    EXPECT_LE(test::worst(got.gradient.to(at::kDouble), want), 1e-6) << got.gradient;
  }
}

TEST(SupervisedContrastive, computes_in_fp32_under_autocast) {
  at::manual_seed(26);
  const Tensor lowered = at::randn({12, 33}).to(at::kBFloat16), wide = lowered.to(at::kFloat);
  const test::Loss loss = supcon({0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 3, 4}, 0.1);
  const Evaluated want = evaluate(loss, wide);
  EXPECT_EQ(want.value.scalar_type(), at::kFloat);
  EXPECT_EQ(loss(wide.to(at::kDouble)).scalar_type(), at::kDouble);
  EXPECT_NEAR(want.value.item<double>(), loss(wide.to(at::kDouble)).item<double>(), 1e-5);
  const Evaluated got = evaluate(loss, lowered);
  EXPECT_TRUE(got.value.equal(want.value));
  EXPECT_TRUE(got.gradient.equal(want.gradient.to(at::kBFloat16)));
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const Tensor leaf = wide.clone().requires_grad_();
    Tensor value;
    {
      const amp::AutocastGuard autocast(at::kCPU, type);
      if (autocast.report().active) {
        ASSERT_EQ(at::mm(wide, wide.t()).scalar_type(), type);
      }
      value = loss(leaf);
      EXPECT_TRUE(loss(lowered).equal(want.value));
    }
    value.backward();
    EXPECT_TRUE(value.equal(want.value));
    EXPECT_TRUE(leaf.grad().equal(want.gradient));
  }
}

TEST(SupervisedContrastive, reads_nothing_on_the_host) {
  at::manual_seed(27);
  test::expect_no_waiting(supcon({0, 1, 0, 2}, 0.1), random({4, 3}));
}

TEST(SupervisedContrastive, takes_rows_in_any_memory_order) {
  at::manual_seed(28);
  const Tensor features = random({6, 4});
  const test::Loss loss = supcon({0, 1, 0, 1, 2, 2}, 0.1);
  const Evaluated want = evaluate(loss, features);
  const Tensor leaf = features.t().contiguous().requires_grad_();
  const Tensor value = loss(leaf.t());
  value.backward();
  expect_same({value.detach(), leaf.grad().t()}, want, "transposed");
}

TEST(SupervisedContrastive, refuses_by_name) {
  const auto refuse = [](const Tensor& features, const Tensor& targets, double temperature,
                         const std::string& message) {
    EXPECT_THAT(refusal([&] { supervised_contrastive(features, targets, {temperature}); }),
                HasSubstr("[supervised_contrastive] " + message));
  };
  const Tensor rows = at::ones({2, 3}), targets = labels({0, 0});
  refuse({}, targets, 0.1, "The features are an undefined tensor.");
  refuse(rows, {}, 0.1, "The targets are an undefined tensor.");
  refuse(rows.to(at::kLong), targets, 0.1, "expected features of a floating-point type, got Long");
  for (const Tensor& other :
       {at::ones({2}), at::ones({2, 3, 1}), at::ones({0, 3}), at::ones({2, 0}), at::ones({})}) {
    refuse(other, targets, 0.1, "expected features [rows, dim], neither of them 0, got [");
  }
  refuse(rows, targets.to(at::kInt), 0.1, "expected int64 targets, got Int");
  refuse(rows, labels({0}), 0.1, "expected targets [2], got [1]");
  refuse(rows, targets.unsqueeze(1), 0.1, "expected targets [2], got [2, 1]");
  refuse(rows, at::empty({2}, targets.options().device(at::kMeta)), 0.1,
         "expected targets on cpu, got meta");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double t : {0.0, -0.1, 1e-21, kInfinity, -kInfinity, std::nan("")}) {
    refuse(rows, targets, t, concat("expected a finite temperature of at least 1e-20, got ", t));
  }
}

}  // namespace
}  // namespace hone::loss
