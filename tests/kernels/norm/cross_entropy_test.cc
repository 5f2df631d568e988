// SPDX-License-Identifier: Apache-2.0
// The loss against closed forms and its own derivative, and rows that are no distribution.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/norm/cross_entropy.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kEpsilon;
using test::kInfinity;
using test::kNan;
using testing::HasSubstr;
using Values = std::vector<float>;
using Targets = std::vector<std::int64_t>;

// Below, at and beyond one vector of every instruction set, with and without a tail.
constexpr Index kClasses[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 100, 1000};

struct Loss {
  std::vector<double> nats;
  Values grad;
};

Loss loss_of(Values logits, const Targets& targets, Executor& executor = serial_executor()) {
  Loss loss{std::vector<double>(targets.size(), -1.0), std::move(logits)};
  const auto rows = static_cast<Index>(targets.size());
  const Index classes = static_cast<Index>(loss.grad.size()) / rows;
  cross_entropy({rows, classes, loss.grad.data(), targets.data(), loss.nats.data(), true},
                executor);
  return loss;
}

Loss loss_of_row(Values logits, std::int64_t target) {
  return loss_of(std::move(logits), {target});
}

TEST(CrossEntropy, matches_the_reference_and_ignores_negative_targets) {
  for (const auto& [rows, classes] : test::kRowShapes) {
    const Values logits = test::random_values(rows * classes, 21, 20);
    std::vector<std::int64_t> targets;
    for (Index row = 0; row < rows; ++row) targets.push_back(row % 5 == 4 ? -1 : row % classes);
    Values got = logits, want = logits, untouched = logits;
    std::vector<double> nats(targets.size()), want_nats(targets.size()), only(targets.size());
    cross_entropy({rows, classes, got.data(), targets.data(), nats.data(), true},
                  serial_executor());
    cross_entropy_ref({rows, classes, want.data(), targets.data(), want_nats.data(), true});
    cross_entropy({rows, classes, untouched.data(), targets.data(), only.data(), false},
                  serial_executor());
    EXPECT_EQ(untouched, logits) << "without a gradient the logits stay";
    EXPECT_EQ(only, nats);
    test::expect_close(got, want, 64 * kEpsilon, "gradient");
    for (std::size_t row = 0; row < targets.size(); ++row) {
      EXPECT_NEAR(nats[row], want_nats[row], 64 * kEpsilon * (1 + want_nats[row]));
    }
  }
}

TEST(CrossEntropyForm, equal_logits_cost_the_logarithm_of_their_number) {
  for (const Index classes : kClasses) {
    for (const float height : {0.0f, -0.0f, 12.5f, -3e38f, 3e38f, 1e-45f}) {
      const auto n = static_cast<double>(classes);
      const Loss loss = loss_of_row(Values(static_cast<std::size_t>(classes), height), classes - 1);
      EXPECT_NEAR(loss.nats[0], std::log(n), 1e-6) << classes << " at " << height;
      for (Index i = 0; i < classes; ++i) {
        const double wanted = 1 / n - (i == classes - 1 ? 1 : 0);
        ASSERT_NEAR(loss.grad[static_cast<std::size_t>(i)], wanted, 2 * kEpsilon);
      }
    }
  }
}

TEST(CrossEntropyForm, two_logits_give_the_logistic_function_of_their_difference) {
  for (const double gap : {-80.0, -20.0, -1.0, 0.0, 0.5, 3.0, 20.0, 80.0}) {
    const Loss loss = loss_of_row({static_cast<float>(gap), 0}, 0);
    EXPECT_NEAR(loss.nats[0], std::log1p(std::exp(-gap)), 1e-6 * (1 + std::abs(gap))) << gap;
    EXPECT_NEAR(loss.grad[1], 1 / (1 + std::exp(gap)), 4e-7) << gap;
  }
}

TEST(CrossEntropyForm, a_certain_prediction_costs_nothing_and_a_certain_error_its_distance) {
  for (const Index classes : kClasses) {
    if (classes < 2) continue;
    for (Index at : {Index{0}, classes / 2, classes - 1}) {
      Values logits(static_cast<std::size_t>(classes), -1e30f);
      logits[static_cast<std::size_t>(at)] = 1e30f;
      const Loss right = loss_of_row(logits, at);
      EXPECT_EQ(right.nats[0], 0);
      EXPECT_EQ(right.grad, Values(logits.size(), 0.0f));
      const Index other = at == 0 ? classes - 1 : 0;
      const Loss wrong = loss_of_row(logits, other);
      EXPECT_EQ(wrong.nats[0], static_cast<double>(1e30f) * 2);
      EXPECT_EQ(wrong.grad[static_cast<std::size_t>(at)], 1);
      EXPECT_EQ(wrong.grad[static_cast<std::size_t>(other)], -1);
    }
  }
}

TEST(CrossEntropyForm, gradient_is_the_derivative_of_the_loss) {
  constexpr double kStep = 0x1p-6;  // the second-order error of a central difference: step² / 6
  for (const Index classes : {2, 7, 16, 19}) {
    const Values logits = test::random_values(classes, 3, 4);
    const Loss loss = loss_of_row(logits, classes / 2);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      Values up = logits, down = logits;
      up[i] += static_cast<float>(kStep);
      down[i] -= static_cast<float>(kStep);
      const double slope =
          (loss_of_row(up, classes / 2).nats[0] - loss_of_row(down, classes / 2).nats[0]) /
          (static_cast<double>(up[i]) - static_cast<double>(down[i]));
      ASSERT_NEAR(loss.grad[i], slope, 1e-4) << classes << " at " << i;
    }
  }
}

TEST(CrossEntropyForm, gradient_of_every_row_sums_to_zero) {
  for (const Index classes : kClasses) {
    const Loss loss = loss_of(test::random_values(9 * classes, 4, 30), Targets(9, classes - 1));
    for (Index row = 0; row < 9; ++row) {
      double sum = 0;
      for (Index i = 0; i < classes; ++i)
        sum += loss.grad[static_cast<std::size_t>(row * classes + i)];
      ASSERT_NEAR(sum, 0, 64 * kEpsilon) << classes << " row " << row;
    }
  }
}

TEST(CrossEntropyForm, adding_a_constant_to_a_row_changes_nothing) {
  for (const Index classes : kClasses) {
    const Values logits = test::random_integers(classes, 5, 20);  // exact sums below
    const Loss base = loss_of_row(logits, 0);
    for (const float shift : {1024.0f, -4096.0f}) {
      Values raised = logits;
      for (float& value : raised) value += shift;
      const Loss loss = loss_of_row(raised, 0);
      EXPECT_NEAR(loss.nats[0], base.nats[0], 1e-12) << classes;
      EXPECT_EQ(loss.grad, base.grad) << classes;
    }
  }
}

TEST(CrossEntropyForm, renaming_the_classes_renames_the_gradient) {
  for (const Index classes : {5, 16, 37}) {
    const Values logits = test::random_values(classes, 6, 5);
    Values reversed(logits.rbegin(), logits.rend());
    const Loss straight = loss_of_row(logits, 1), back = loss_of_row(reversed, classes - 2);
    EXPECT_NEAR(straight.nats[0], back.nats[0], 1e-6);
    for (std::size_t i = 0; i < logits.size(); ++i)
      ASSERT_NEAR(straight.grad[i], back.grad[logits.size() - 1 - i], 8 * kEpsilon);
  }
}

TEST(CrossEntropyForm, a_row_alone_has_the_bits_of_the_row_in_a_batch_on_any_number_of_threads) {
  constexpr Index kRows = 700, kWidth = 67;
  const Values logits = test::random_values(kRows * kWidth, 7, 8);
  Targets targets;
  for (Index row = 0; row < kRows; ++row) targets.push_back(row % 11 == 3 ? -1 : row % kWidth);
  const Loss whole = loss_of(logits, targets);
  for (const int threads : {2, 5}) {
    ThreadPool pool(threads);
    const Loss again = loss_of(logits, targets, pool);
    EXPECT_EQ(again.nats, whole.nats);
    EXPECT_EQ(again.grad, whole.grad);
  }
  for (Index row = 0; row < kRows; row += 53) {
    const auto begin = logits.begin() + row * kWidth;
    const Loss alone = loss_of_row(Values(begin, begin + kWidth), targets[row]);
    ASSERT_EQ(alone.nats[0], whole.nats[row]);
    ASSERT_TRUE(
        std::equal(alone.grad.begin(), alone.grad.end(), whole.grad.begin() + row * kWidth));
  }
}

// The reference must say the same, so that it can be the oracle.
void expect_no_distribution(const Values& logits, std::int64_t target, const std::string& what) {
  const auto classes = static_cast<Index>(logits.size());
  for (const bool want_grad : {true, false}) {
    Values ours = logits, theirs = logits;
    double nats = 0, nats_ref = 0;
    cross_entropy({1, classes, ours.data(), &target, &nats, want_grad}, serial_executor());
    cross_entropy_ref({1, classes, theirs.data(), &target, &nats_ref, want_grad});
    ASSERT_TRUE(std::isnan(nats)) << what << " gives " << nats;
    ASSERT_TRUE(std::isnan(nats_ref)) << what;
    if (!want_grad) continue;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      ASSERT_TRUE(std::isnan(ours[i])) << what << ": gradient " << i << " is " << ours[i];
      ASSERT_TRUE(std::isnan(theirs[i])) << what;
    }
  }
}

TEST(CrossEntropyNoDistribution, nan_or_plus_infinity_at_any_place_makes_loss_and_gradient_nan) {
  for (const Index classes : {1, 2, 5, 16, 20, 35}) {
    for (Index at = 0; at < classes; ++at) {
      for (const float bad : {kNan, -kNan, kInfinity}) {
        Values logits = test::random_values(classes, 8, 3);
        logits[static_cast<std::size_t>(at)] = bad;
        for (const std::int64_t target : {Index{0}, at, classes - 1})
          expect_no_distribution(
              logits, target,
              std::to_string(bad) + " at " + std::to_string(at) + " of " + std::to_string(classes));
      }
    }
  }
}

TEST(CrossEntropyNoDistribution, nothing_but_minus_infinity_makes_loss_and_gradient_nan) {
  for (const Index classes : kClasses)
    expect_no_distribution(Values(static_cast<std::size_t>(classes), -kInfinity), 0, "masked row");
}

TEST(CrossEntropyNoDistribution, a_masked_class_has_probability_zero_and_costs_infinity_as_target) {
  for (const Index classes : kClasses) {
    if (classes < 2) continue;
    for (Index at : {Index{0}, classes / 2, classes - 1}) {
      Values logits(static_cast<std::size_t>(classes), 1.0f);
      logits[static_cast<std::size_t>(at)] = -kInfinity;
      const std::int64_t other = at == 0 ? classes - 1 : 0;
      const Loss spared = loss_of_row(logits, other);
      EXPECT_NEAR(spared.nats[0], std::log(static_cast<double>(classes - 1)), 1e-6);
      EXPECT_EQ(spared.grad[static_cast<std::size_t>(at)], 0);
      const Loss hit = loss_of_row(logits, at);
      EXPECT_EQ(hit.nats[0], std::numeric_limits<double>::infinity());
      EXPECT_EQ(hit.grad[static_cast<std::size_t>(at)], -1);
      EXPECT_TRUE(std::isfinite(hit.grad[static_cast<std::size_t>(other)]));
    }
  }
}

TEST(CrossEntropyNoDistribution, a_bad_row_leaves_its_neighbors_alone) {
  for (const Index classes : {3, 16, 21}) {
    const Values logits = test::random_values(3 * classes, 9, 3);
    Values bad = logits;
    bad[static_cast<std::size_t>(classes + 1)] = kNan;
    const Targets targets{0, 1, 2};
    const Loss clean = loss_of(logits, targets), loss = loss_of(bad, targets);
    EXPECT_EQ(loss.nats[0], clean.nats[0]);
    EXPECT_TRUE(std::isnan(loss.nats[1]));
    EXPECT_EQ(loss.nats[2], clean.nats[2]);
    for (Index i = 0; i < 3 * classes; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const bool in_bad_row = i / classes == 1;
      ASSERT_TRUE(in_bad_row ? std::isnan(loss.grad[at]) : loss.grad[at] == clean.grad[at]) << i;
    }
  }
}

TEST(CrossEntropyNoDistribution, an_ignored_row_is_zero_whatever_it_holds) {
  for (const float held : {kNan, kInfinity, -kInfinity, 3e38f}) {
    for (const std::int64_t target :
         {std::int64_t{-1}, std::int64_t{-100}, std::numeric_limits<std::int64_t>::min()}) {
      const Loss loss = loss_of_row(Values(19, held), target);
      EXPECT_EQ(loss.nats[0], 0);
      EXPECT_EQ(loss.grad, Values(19, 0.0f));
    }
  }
}

TEST(CrossEntropyHostile, refuses_a_target_outside_the_classes) {
  Values logits(4);
  const std::int64_t target = 4;
  double nats = 0;
  EXPECT_THROW(cross_entropy({1, 4, logits.data(), &target, &nats, true}, serial_executor()),
               hone::Error);
}

TEST(CrossEntropyHostile, names_what_it_expected_and_touches_nothing) {
  Values logits(8, 1.0f);
  const Values before = logits;
  std::vector<double> nats(2, -1.0);
  const auto sentence = [&](Index classes, const Targets& targets) {
    return test::error_of([&] {
      cross_entropy({2, classes, logits.data(), targets.data(), nats.data(), true},
                    serial_executor());
    });
  };
  EXPECT_THAT(sentence(0, {0, 0}), HasSubstr("[cross_entropy] expected classes > 0, got 0"));
  EXPECT_THAT(sentence(-4, {0, 0}), HasSubstr("got -4"));
  EXPECT_THAT(sentence(4, {0, 4}), HasSubstr("targets below 4, got 4"));
  EXPECT_THAT(sentence(4, {std::numeric_limits<std::int64_t>::max(), 0}), HasSubstr("below 4"));
  EXPECT_EQ(logits, before);
  EXPECT_EQ(nats, (std::vector<double>{-1, -1}));
}

TEST(CrossEntropyHostile, no_rows_are_no_work_and_the_last_row_ends_at_the_page) {
  cross_entropy({0, 5, nullptr, nullptr, nullptr, true}, serial_executor());
  for (const Index classes : {1, 3, 16, 33}) {
    const test::GuardedFloats logits(test::random_values(2 * classes, 3));
    const Targets targets{0, classes - 1};
    std::vector<double> nats(2);
    cross_entropy({2, classes, logits.data(), targets.data(), nats.data(), true},
                  serial_executor());
    EXPECT_GE(nats[1], 0);
  }
}

}  // namespace
}  // namespace hone::kernels
