// SPDX-License-Identifier: Apache-2.0
// Closed forms, a loop over the definition in fp64, and LibTorch's operators.
#include "hone/train/loss/distillation.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::loss {
namespace {

using hone::test::refusal;
using nn::test::seeded_normal;
using testing::HasSubstr;
using torch::Tensor;

const std::vector<std::int64_t> kTargets{2, 0, -1, 4, 1, -100, 3};

Tensor student_logits(at::ScalarType type = at::kDouble) {
  return (3 * seeded_normal({7, 5}, 1, type)).detach();
}
Tensor teacher_logits(at::ScalarType type = at::kDouble) {
  return (4 * seeded_normal({7, 5}, 2, type)).detach();
}
Tensor targets() { return at::tensor(kTargets, at::kLong); }

std::vector<double> softmax(const double* logits, double temperature) {
  std::vector<double> out(5);
  double sum = 0;
  for (std::size_t c = 0; c < 5; ++c) sum += out[c] = std::exp(logits[c] / temperature);
  for (double& p : out) p /= sum;
  return out;
}

TEST(Distillation, is_the_sum_of_its_definition) {
  const Tensor student = student_logits(), teacher = teacher_logits();
  for (const double temperature : {0.5, 1.0, 3.0, 20.0}) {
    for (const double alpha : {0.0, 0.3, 1.0}) {
      double soft = 0, hard = 0;
      for (std::size_t row = 0; row < kTargets.size(); ++row) {
        if (kTargets[row] < 0) continue;
        const double *s = student.data_ptr<double>() + 5 * row,
                     *t = teacher.data_ptr<double>() + 5 * row;
        const auto pt = softmax(t, temperature), ps = softmax(s, temperature);
        for (std::size_t c = 0; c < 5; ++c) soft += pt[c] * std::log(pt[c] / ps[c]);
        hard -= std::log(softmax(s, 1)[static_cast<std::size_t>(kTargets[row])]);
      }
      soft *= temperature * temperature;
      const DistillationSums sums = distillation_sums(student, teacher, targets(),
                                                      {.temperature = temperature, .alpha = alpha});
      EXPECT_EQ(sums.rows, 5);
      EXPECT_NEAR(sums.hard.item<double>(), hard, 1e-10);
      EXPECT_EQ(sums.soft.defined(), alpha > 0);
      if (alpha > 0) EXPECT_NEAR(sums.soft.item<double>(), soft, 1e-9);
      EXPECT_NEAR(sums.total.item<double>(), alpha * soft + (1 - alpha) * hard, 1e-9);
    }
  }
}

TEST(Distillation, has_the_gradient_of_the_closed_form) {
  for (const auto type : {at::kDouble, at::kFloat}) {
    const double tolerance = type == at::kDouble ? 1e-12 : 1e-5;
    for (const double temperature : {1.0, 4.0}) {
      const double alpha = 0.7;
      const Tensor student = student_logits(type).requires_grad_();
      const Tensor teacher = teacher_logits(type).requires_grad_();
      distillation_sums(student, teacher, targets(), {.temperature = temperature, .alpha = alpha})
          .total.backward();
      EXPECT_FALSE(teacher.grad().defined());
      const Tensor s = student.detach().to(at::kDouble), t = teacher.detach().to(at::kDouble);
      const Tensor hot = at::one_hot(targets().clamp_min(0), 5);
      Tensor want = alpha * temperature *
                        (at::softmax(s / temperature, 1) - at::softmax(t / temperature, 1)) +
                    (1 - alpha) * (at::softmax(s, 1) - hot);
      want = want.masked_fill(targets().lt(0).unsqueeze(1), 0);
      EXPECT_LT((student.grad() - want).abs().max().item<double>(), tolerance) << temperature;
    }
  }
}

TEST(Distillation, agrees_with_the_divergence_of_libtorch) {
  const Tensor student = student_logits(), teacher = teacher_logits();
  const double t = 2.5;
  const Tensor want =
      at::kl_div(at::log_softmax(student / t, 1), at::softmax(teacher / t, 1), at::Reduction::Sum) *
      (t * t);
  const DistillationSums sums = distillation_sums(student, teacher, {}, {.temperature = t});
  EXPECT_NEAR(sums.soft.item<double>(), want.item<double>(), 1e-10);
  EXPECT_EQ(sums.rows, 7) << "every row counts without targets";
  EXPECT_FALSE(sums.hard.defined());
  EXPECT_TRUE(sums.total.equal(sums.soft));
}

TEST(Distillation, compares_centered_logits_at_a_high_temperature) {
  const Tensor student = student_logits(), teacher = teacher_logits();
  const auto centered = [](const Tensor& z) { return z - z.mean(1, true); };
  const double want =
      (centered(teacher) - centered(student)).square().sum().item<double>() / (2 * 5);
  const double got =
      distillation_sums(student, teacher, {}, {.temperature = 1e4}).soft.item<double>();
  EXPECT_NEAR(got / want, 1, 1e-3);
}

TEST(Distillation, ignores_rows_without_a_target_and_repeats) {
  const Tensor student = student_logits(), teacher = teacher_logits();
  const auto means = [](const DistillationSums& sums) {
    return std::pair(sums.soft.item<double>() / static_cast<double>(sums.rows),
                     sums.hard.item<double>() / static_cast<double>(sums.rows));
  };
  const auto [soft, hard] = means(distillation_sums(student, teacher, targets()));
  const Tensor padding = at::full({3, 5}, 100.0);
  const auto padded =
      means(distillation_sums(at::cat({student, padding}), at::cat({teacher, -padding}),
                              at::cat({targets(), at::full({3}, -1, at::kLong)})));
  EXPECT_NEAR(padded.first, soft, 1e-12);
  EXPECT_NEAR(padded.second, hard, 1e-12);
  const auto twice = means(
      distillation_sums(student.repeat({2, 1}), teacher.repeat({2, 1}), targets().repeat({2})));
  EXPECT_NEAR(twice.first, soft, 1e-12);
  EXPECT_NEAR(twice.second, hard, 1e-12);
}

TEST(Distillation, is_nothing_for_a_student_that_equals_its_teacher) {
  const Tensor logits = student_logits(at::kFloat).requires_grad_();
  const DistillationSums sums = distillation_sums(logits, logits.detach(), targets(), {.alpha = 1});
  EXPECT_NEAR(sums.total.item<double>(), 0, 1e-6);
  sums.total.backward();
  EXPECT_LT(logits.grad().abs().max().item<double>(), 1e-6);
}

TEST(Distillation, smooths_the_hard_loss_as_libtorch_does) {
  const Tensor student = student_logits();
  const Tensor want = at::cross_entropy_loss(student, targets().clamp_min(-1), {},
                                             at::Reduction::Sum, -1, /*label_smoothing=*/0.1);
  EXPECT_NEAR(distillation_sums(student, {}, targets(), {.alpha = 0, .label_smoothing = 0.1})
                  .total.item<double>(),
              want.item<double>(), 1e-10);
}

TEST(Distillation, computes_logits_of_16_bits_in_32) {
  const Tensor student = student_logits(at::kFloat).to(at::kBFloat16);
  const Tensor teacher = teacher_logits(at::kFloat).to(at::kBFloat16);
  const DistillationSums sums = distillation_sums(student, teacher, targets());
  EXPECT_EQ(sums.total.scalar_type(), at::kFloat);
  EXPECT_TRUE(sums.total.equal(
      distillation_sums(student.to(at::kFloat), teacher.to(at::kFloat), targets()).total));
}

TEST(Distillation, refuses_what_it_cannot_compare) {
  const Tensor student = student_logits(), teacher = teacher_logits();
  const auto message = [&](const Tensor& taught, const Tensor& wanted,
                           const DistillationOptions& options) {
    return refusal([&] { distillation_sums(student, taught, wanted, options); });
  };
  EXPECT_THAT(message(teacher.narrow(1, 0, 4), targets(), {}), HasSubstr("teacher"));
  EXPECT_THAT(message({}, targets(), {}), HasSubstr("teacher"));
  EXPECT_THAT(message(teacher, targets().narrow(0, 0, 3), {}), HasSubstr("targets"));
  EXPECT_THAT(message(teacher, targets().to(at::kInt), {}), HasSubstr("int64"));
  for (const double temperature : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(message(teacher, targets(), {.temperature = temperature}),
                HasSubstr("distill.temperature"));
  }
  for (const double alpha : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(message(teacher, targets(), {.alpha = alpha}), HasSubstr("distill.alpha"));
  }
  EXPECT_THAT(refusal([&] { distillation_sums(student[0], teacher[0], targets()); }),
              HasSubstr("student"));
}

}  // namespace
}  // namespace hone::loss
