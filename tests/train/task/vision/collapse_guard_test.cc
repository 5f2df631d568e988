// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/collapse_guard.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "tests/support/error_of.h"

namespace hone::task {
namespace {

using testing::HasSubstr;
using torch::Tensor;

constexpr Index kClasses = 5, kImages = 10;

CollapseGuardOptions watching() {
  return {.classes = kClasses,
          .contrasts = true,
          .if_silent = "Raise the margin.",
          .if_shrinking = "Detach the weights.",
          .if_collapsed = "Lower the rate."};
}

Tensor targets() { return at::arange(kImages, at::kLong).remainder(kClasses); }
// Right with a margin of `sure`.
Tensor logits_of(double sure) { return sure * at::one_hot(targets(), kClasses).to(at::kFloat); }

struct Training {
  double sure = 3, norm = 1, active = 0.5;
  bool one_class = false;
};
// Epochs [first, last) of kLeastSteps steps each.
void observe(CollapseGuard& guard, Index first, Index last, const Training& training = {}) {
  Tensor logits = logits_of(training.sure);
  if (training.one_class) logits.select(1, 2) += 50;
  for (Index epoch = first; epoch < last; ++epoch) {
    for (Index step = 0; step < CollapseGuard::kLeastSteps; ++step) {
      guard.observe({.epoch = epoch,
                     .logits = logits,
                     .targets = targets(),
                     .features = at::full({kImages, 4}, training.norm / 2),
                     .active_share = at::full({}, training.active)});
    }
  }
}

std::string warnings_of(const std::function<void()>& work) {
  set_log_level(LogLevel::Warning);
  testing::internal::CaptureStderr();
  work();
  return testing::internal::GetCapturedStderr();
}

TEST(CollapseGuard, has_nothing_to_say_of_training_that_learns) {
  CollapseGuard guard(watching());
  EXPECT_EQ(warnings_of([&] { observe(guard, 0, 8); }), "");
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Ok);
}

TEST(CollapseGuard, warns_once_of_features_below_half_of_their_first_norm) {
  CollapseGuard guard(watching());
  EXPECT_EQ(warnings_of([&] {
              observe(guard, 0, 1, {.norm = 8});
              observe(guard, 1, 3, {.norm = 4.1});
            }),
            "");
  const std::string warning = warnings_of([&] { observe(guard, 3, 6, {.norm = 3.9}); });
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Shrinking);
  EXPECT_THAT(warning, HasSubstr("mean norm 3.9, at first 8"));
  EXPECT_THAT(warning, HasSubstr("Detach the weights."));
  EXPECT_EQ(warning.find("shrink"), warning.rfind("shrink"));
}

// As where a step is run again with less memory, or skipped, after its first micro-batch has ended
// a period.
TEST(CollapseGuard, warns_once_where_its_state_is_set_back) {
  CollapseGuard guard(watching());
  observe(guard, 0, 1, {.norm = 8});
  observe(guard, 1, 2, {.norm = 3});
  std::vector<Tensor> before;
  for (const auto& item : guard.state()) before.push_back(item.value.clone());
  const auto run = [&] { observe(guard, 2, 3, {.norm = 3}); };
  EXPECT_THAT(warnings_of(run), HasSubstr("the features shrink"));
  for (std::size_t i = 0; i < before.size(); ++i) guard.state()[i].value.copy_(before[i]);
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Ok);
  EXPECT_EQ(warnings_of(run), "");
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Shrinking);
  EXPECT_THAT(warnings_of([&] { observe(guard, 3, 7, {.sure = 0, .norm = 3}); }),
              HasSubstr("predicts by chance"));
}

TEST(CollapseGuard, takes_three_periods_at_chance_for_a_collapse) {
  CollapseGuard guard(watching());
  observe(guard, 0, 2, {.sure = 0.01});
  observe(guard, 2, 3);
  observe(guard, 3, 6, {.sure = 0.01});
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Ok) << "the third period has not ended";
  EXPECT_THAT(warnings_of([&] { observe(guard, 6, 7); }), HasSubstr("Lower the rate."));
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Collapsed);
}

TEST(CollapseGuard, takes_one_class_for_all_images_for_a_collapse) {
  CollapseGuard guard(watching());
  observe(guard, 0, 4, {.one_class = true});
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Collapsed);
}

// If 49 of 50 images are in one class, a model that learns predicts that class for as many.
TEST(CollapseGuard, allows_a_class_that_most_images_have) {
  constexpr Index kMany = 50;
  const Tensor targets = at::zeros({kMany}, at::kLong);
  targets[0] = 1;
  for (const bool learns : {true, false}) {
    CollapseGuard guard(watching());
    const Tensor answers = learns ? targets : at::zeros_like(targets);
    const Tensor logits = 5 * at::one_hot(answers, kClasses).to(at::kFloat);
    for (Index epoch = 0; epoch < 4; ++epoch) {
      for (Index step = 0; step < CollapseGuard::kLeastSteps; ++step) {
        guard.observe({.epoch = epoch,
                       .logits = logits,
                       .targets = targets,
                       .active_share = at::full({}, 0.5)});
      }
    }
    EXPECT_EQ(guard.verdict(), learns ? CollapseVerdict::Ok : CollapseVerdict::Collapsed);
  }
}

TEST(CollapseGuard, allows_chance_while_the_rate_rises) {
  CollapseGuardOptions options = watching();
  options.warm_up_epochs = 5;
  CollapseGuard guard(options);
  observe(guard, 0, 8, {.sure = 0});  // ends the periods of epochs 0 to 6, two after the warm-up
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Ok);
  observe(guard, 8, 9, {.sure = 0});
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Collapsed);
}

TEST(CollapseGuard, says_where_part_contrast_is_silent) {
  for (const bool contrasts : {false, true}) {
    CollapseGuardOptions options = watching();
    options.contrasts = contrasts;
    CollapseGuard guard(options);
    const std::string warning = warnings_of([&] { observe(guard, 0, 4, {.active = 0.004}); });
    EXPECT_EQ(guard.verdict(), contrasts ? CollapseVerdict::Silent : CollapseVerdict::Ok);
    EXPECT_EQ(warning.find("Raise the margin.") != std::string::npos, contrasts);
  }
}

TEST(CollapseGuard, allows_a_cross_entropy_near_chance_that_falls) {
  CollapseGuard guard(watching());
  for (Index epoch = 0; epoch < 6; ++epoch) {
    observe(guard, epoch, epoch + 1, {.sure = 0.007 * static_cast<double>(epoch)});
  }
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Ok);
}

TEST(CollapseGuard, judges_the_last_period_at_the_end_without_stopping) {
  CollapseGuardOptions options = watching();
  options.stops = true;
  CollapseGuard guard(options);
  observe(guard, 0, 3, {.sure = 0});
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Ok);
  guard.finish();
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Collapsed);
}

TEST(CollapseGuard, stops_where_told) {
  CollapseGuardOptions options = watching();
  options.stops = true;
  CollapseGuard guard(options);
  EXPECT_THAT(hone::test::error_of([&] { observe(guard, 0, 5, {.sure = 0}); }),
              HasSubstr("After pass 3 over the images the model predicts by chance"));
}

// Passes of few steps are taken together.
TEST(CollapseGuard, judges_no_period_of_few_steps) {
  CollapseGuard guard(watching());
  for (Index epoch = 0; epoch < 3 * CollapseGuard::kLeastSteps; ++epoch) {
    guard.observe({.epoch = epoch, .logits = logits_of(0), .targets = targets()});
  }
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Ok);
  for (const Index epoch : {100, 101}) {
    guard.observe({.epoch = epoch, .logits = logits_of(0), .targets = targets()});
  }
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Collapsed);
}

TEST(CollapseGuard, goes_on_from_its_state) {
  CollapseGuard guard(watching()), resumed(watching());
  observe(guard, 0, 3, {.sure = 0, .norm = 8});
  const auto from = guard.state(), to = resumed.state();
  ASSERT_FALSE(from.empty());
  ASSERT_EQ(from.size(), to.size());
  for (std::size_t i = 0; i < from.size(); ++i) to[i].value.copy_(from[i].value);
  for (CollapseGuard* one : {&guard, &resumed}) observe(*one, 3, 5, {.sure = 0, .norm = 2});
  EXPECT_EQ(guard.verdict(), CollapseVerdict::Collapsed);
  EXPECT_EQ(resumed.verdict(), CollapseVerdict::Collapsed);
  for (std::size_t i = 0; i < from.size(); ++i) {
    EXPECT_TRUE(to[i].value.equal(from[i].value)) << from[i].name;
  }
}

}  // namespace
}  // namespace hone::task
