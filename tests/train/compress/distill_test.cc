// SPDX-License-Identifier: Apache-2.0
// A student of a module learns from a teacher, and is compared with the same student without one.
#include "hone/train/compress/distill.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::nn {
namespace {

using hone::test::refusal;
using test::seeded_normal;
using testing::HasSubstr;
using torch::Tensor;
using torch::nn::Linear;
using torch::nn::Sequential;

constexpr Index kInputs = 10, kClasses = 4, kRows = 16;

// The rule that classes follow, which the teacher knows.
Linear make_rule() {
  torch::manual_seed(3);
  Linear rule(kInputs, kClasses);
  const at::NoGradGuard no_grad;
  rule->weight.mul_(8);
  return rule;
}

Sequential make_student() {
  torch::manual_seed(9);
  return Sequential(Linear(kInputs, 6), torch::nn::Dropout(0.1), torch::nn::ReLU(),
                    Linear(6, kClasses));
}

// Rows whose targets follow the rule but for a share that is random.
DistillBatch rows_of(Linear rule, Index rows, std::uint64_t seed, double noise) {
  const at::NoGradGuard no_grad;
  const Tensor x = seeded_normal({rows, kInputs}, seed, at::kFloat);
  const Tensor other = seeded_normal({rows, kClasses}, seed + 1, at::kFloat).argmax(1);
  const Tensor is_noise = seeded_normal({rows}, seed + 2, at::kFloat).lt(noise);
  return {x, at::where(is_noise, other, rule->forward(x).argmax(1))};
}

DistillData data_of(Linear rule, double noise) {
  return {[=](Index step) {
            return rows_of(rule, kRows, static_cast<std::uint64_t>(1000 + 10 * step), noise);
          },
          {rows_of(rule, 300, 1, -100), rows_of(rule, 200, 5, -100)}};
}

std::vector<Tensor> weights_of(Sequential& net) {
  std::vector<Tensor> out;
  for (const Tensor& parameter : net->parameters()) out.push_back(parameter.detach().clone());
  return out;
}

TEST(Distill, helps_a_student_whose_targets_are_mostly_noise) {
  Linear rule = make_rule();
  Sequential student = make_student();
  const Tensor before = rule->weight.detach().clone();
  const DistillReport report = distill(rule, student, data_of(rule, 0.6),
                                       {.loss = {.temperature = 2, .alpha = 0.9}, .steps = 1500});
  EXPECT_EQ(report.teacher_parameters, kInputs * kClasses + kClasses);
  EXPECT_EQ(report.student_parameters, kInputs * 6 + 6 + 6 * kClasses + kClasses);
  EXPECT_TRUE(rule->weight.equal(before));
  ASSERT_TRUE(report.control);
  EXPECT_GT(report.low, 0) << report.verdict;
  EXPECT_THAT(report.verdict, HasSubstr("helps"));
  EXPECT_NEAR(report.gain, report.distilled.accuracy - report.control->accuracy, 1e-12);
  EXPECT_EQ(report.distilled.accuracy, report.distilled.agreement) << "the teacher has all right";
  const DistillRun& run = report.distilled;
  ASSERT_EQ(run.total.size(), 1500U);
  ASSERT_EQ(run.soft.size(), 1500U);
  ASSERT_EQ(run.hard.size(), 1500U);
  for (std::size_t i = 0; i < 1500; ++i) {
    EXPECT_NEAR(run.total[i], 0.9 * run.soft[i] + 0.1 * run.hard[i], 1e-5);
  }
  EXPECT_NEAR(run.final_loss, std::accumulate(run.total.end() - 10, run.total.end(), 0.0) / 10,
              1e-12);
  const auto mean = [](auto begin) { return std::accumulate(begin, begin + 40, 0.0) / 40; };
  EXPECT_LT(mean(run.soft.end() - 40), mean(run.soft.begin()) / 2);
  EXPECT_TRUE(report.control->soft.empty());
  EXPECT_EQ(to_json(report)["control"]["accuracy"], report.control->accuracy);
}

TEST(Distill, control_is_the_training_that_one_would_write) {
  Linear rule = make_rule();
  const DistillData data = data_of(rule, 0.1);
  Sequential student = make_student(), plain = make_student();
  const auto sgd = [](std::vector<Tensor> parameters) {
    return std::make_shared<torch::optim::SGD>(std::move(parameters),
                                               torch::optim::SGDOptions(0.05));
  };
  const DistillReport report = distill(
      rule, student, data, {.loss = {.alpha = 0}, .steps = 20, .optimizer = sgd, .seed = 77});
  torch::manual_seed(77);
  torch::optim::SGD optimizer(plain->parameters(), torch::optim::SGDOptions(0.05));
  for (Index step = 0; step < 20; ++step) {
    const DistillBatch batch = data.batch(step);
    optimizer.zero_grad();
    const Tensor loss = at::cross_entropy_loss(plain->forward(batch.inputs), batch.targets);
    EXPECT_NEAR(report.control->total[static_cast<std::size_t>(step)], loss.item<double>(), 1e-6);
    loss.backward();
    optimizer.step();
  }
  const std::vector<Tensor> got = weights_of(student), want = weights_of(plain);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::allclose(got[i], want[i], 1e-5));
  EXPECT_EQ(report.distilled.total, report.control->total) << "with alpha = 0 both are the same";
  EXPECT_EQ(report.gain, 0);
  EXPECT_THAT(report.verdict, HasSubstr("tie"));
}

TEST(Distill, keeps_the_random_numbers_and_modes_of_the_caller) {
  Linear rule = make_rule();
  Sequential student = make_student();
  student->ptr(1)->eval();
  torch::manual_seed(1);
  const Tensor want = at::rand({3});
  torch::manual_seed(1);
  distill(rule, student, data_of(rule, 0), {.steps = 3});
  EXPECT_TRUE(at::rand({3}).equal(want));
  EXPECT_TRUE(rule->is_training());
  EXPECT_TRUE(student->is_training());
  EXPECT_FALSE(student->ptr(1)->is_training());
}

TEST(Distill, learns_from_a_teacher_alone) {
  Linear rule = make_rule();
  Sequential student = make_student();
  DistillData data = data_of(rule, 0);
  data.batch = [all = data.batch](Index step) { return DistillBatch{all(step).inputs}; };
  const DistillReport report = distill(rule, student, data, {.steps = 300});
  EXPECT_FALSE(report.control);
  EXPECT_TRUE(report.distilled.hard.empty());
  EXPECT_GT(report.distilled.agreement, 0.7);
}

TEST(Distill, takes_logits_of_sequences) {
  Linear rule = make_rule();
  Sequential student = make_student();
  DistillData data;
  data.batch = [=](Index step) {
    const DistillBatch flat = rows_of(rule, 12, static_cast<std::uint64_t>(10 * step), 0);
    Tensor targets = flat.targets.reshape({3, 4}).clone();
    targets[0][0] = -1;
    return DistillBatch{flat.inputs.reshape({3, 4, kInputs}), targets};
  };
  data.held_out = {data.batch(100)};
  const DistillReport report = distill(rule, student, data, {.steps = 5});
  EXPECT_EQ(report.distilled.total.size(), 5U);
  EXPECT_NEAR(report.distilled.accuracy * 11, std::round(report.distilled.accuracy * 11), 1e-9)
      << "11 rows have a target";
}

TEST(Distill, learns_from_what_was_kept_of_a_teacher_without_calling_it) {
  Linear rule = make_rule();
  const DistillData live = data_of(rule, 0.1);
  DistillData kept = live;
  kept.batch = [live, rule](Index step) mutable {
    DistillBatch batch = live.batch(step);
    batch.taught = loss::top_k_of(rule(batch.inputs), kClasses - 1, 3);
    return batch;
  };
  Index calls = 0;
  const ModuleCall counted(rule.ptr(), [&calls, rule](const Tensor& x) mutable {
    ++calls;
    return rule->forward(x);
  });
  Sequential one = make_student(), other = make_student();
  const DistillOptions options{.loss = {.temperature = 3}, .steps = 30, .control = false};
  const DistillReport want = distill(rule, one, live, options);
  const DistillReport got = distill(counted, other, kept, options);
  EXPECT_EQ(calls, 2) << "for the two held-out batches";
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_NEAR(got.distilled.soft[i], want.distilled.soft[i], 1e-4 * want.distilled.soft[0]);
  }
}

TEST(Distill, puts_the_student_back_if_its_loss_is_not_finite) {
  Linear rule = make_rule();
  Sequential student = make_student();
  const std::vector<Tensor> before = weights_of(student);
  DistillData data = data_of(rule, 0);
  data.batch = [all = data.batch](Index step) {
    DistillBatch batch = all(step);
    if (step == 4) batch.inputs.fill_(std::numeric_limits<float>::infinity());
    return batch;
  };
  EXPECT_THAT(refusal([&] { distill(rule, student, data, {.steps = 9}); }), HasSubstr("finite"));
  const std::vector<Tensor> after = weights_of(student);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(after[i].equal(before[i]));
}

TEST(Distill, refuses_what_cannot_be_trained) {
  Linear rule = make_rule(), narrow(kInputs, 3);
  Sequential student = make_student();
  const DistillData data = data_of(rule, 0);
  EXPECT_THAT(refusal([&] { distill(narrow, student, data, {.steps = 1}); }), HasSubstr("teacher"));
  EXPECT_THAT(refusal([&] { distill(rule, student, data, {.steps = 0}); }), HasSubstr("step"));
  EXPECT_THAT(refusal([&] { distill(rule, student, {}, {.steps = 1}); }), HasSubstr("batches"));
  EXPECT_THAT(refusal([&] { distill(rule, student, data, {.loss = {.alpha = 2}}); }),
              HasSubstr("alpha"));
  for (Tensor& parameter : student->parameters()) parameter.set_requires_grad(false);
  EXPECT_THAT(refusal([&] { distill(rule, student, data, {.steps = 1}); }),
              HasSubstr("parameters"));
}

}  // namespace
}  // namespace hone::nn
