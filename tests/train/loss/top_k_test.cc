// SPDX-License-Identifier: Apache-2.0
// The soft loss against a few classes of the teacher, and files of them.
#include "hone/train/loss/top_k.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "hone/core/file/file_io.h"
#include "hone/train/tensor_file.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::loss {
namespace {

using hone::test::error_of;
using nn::test::seeded_normal;
using testing::HasSubstr;
using torch::Tensor;

constexpr Index kVocabulary = 9;

Tensor student() { return 2 * seeded_normal({6, kVocabulary}, 1, at::kDouble); }
Tensor teacher() { return 3 * seeded_normal({6, kVocabulary}, 2, at::kDouble); }
Tensor wanted() { return at::tensor({1, 3, -1, 0, 8, 2}, at::kLong); }

TEST(TopK, is_a_lower_bound_that_grows_to_the_whole_loss) {
  for (const double temperature : {1.0, 3.0}) {
    const DistillationOptions options{.temperature = temperature, .alpha = 0.6};
    const DistillationSums whole = distillation_sums(student(), teacher(), wanted(), options);
    double last = 0;
    for (Index k = 1; k < kVocabulary; ++k) {
      const DistillationSums sums = top_k_distillation_sums(
          student(), top_k_of(teacher(), k, temperature), wanted(), options);
      EXPECT_EQ(sums.rows, 5);
      EXPECT_NEAR(sums.hard.item<double>(), whole.hard.item<double>(), 1e-12);
      const double soft = sums.soft.item<double>();
      EXPECT_GE(soft, last - 1e-6) << k;
      EXPECT_LE(soft, whole.soft.item<double>() + 1e-5) << k;
      EXPECT_NEAR(sums.total.item<double>(), 0.6 * soft + 0.4 * sums.hard.item<double>(), 1e-9);
      last = soft;
    }
    EXPECT_NEAR(last, whole.soft.item<double>(), 1e-5 * last) << "k = classes - 1";
  }
}

TEST(TopK, has_the_gradient_of_the_whole_loss_with_all_but_one_class) {
  const Tensor one = student().detach().requires_grad_(), other = one.detach().clone();
  other.requires_grad_();
  const DistillationOptions options{.temperature = 2, .alpha = 1};
  distillation_sums(one, teacher(), wanted(), options).total.backward();
  top_k_distillation_sums(other, top_k_of(teacher(), kVocabulary - 1, 2), wanted(), options)
      .total.backward();
  EXPECT_LT((one.grad() - other.grad()).abs().max().item<double>(), 1e-5);
}

TEST(TopK, gradient_stays_finite_for_a_certain_teacher_and_student) {
  const Tensor sure = at::full({2, 4}, -200.0);
  sure.select(1, 2).fill_(200.0);
  const Tensor one = sure.clone().requires_grad_();
  const DistillationSums sums =
      top_k_distillation_sums(one, top_k_of(sure, 1, 1), {}, {.alpha = 1});
  sums.total.backward();
  EXPECT_NEAR(sums.total.item<double>(), 0, 1e-6);
  EXPECT_TRUE(at::isfinite(one.grad()).all().item<bool>());
}

TEST(TopK, files_are_read_as_written) {
  const hone::test::TemporaryFolder folder;
  const auto path = folder.path() / "top.safetensors";
  const TopK top = top_k_of(teacher(), 4, 2.5);
  write_top_k(path, top);
  const TopK read = read_top_k(path);
  EXPECT_TRUE(read.classes.equal(top.classes));
  EXPECT_TRUE(read.log_probs.equal(top.log_probs));
  EXPECT_EQ(read.temperature, 2.5);
  EXPECT_EQ(read.of, kVocabulary);
  const TopK part = read.rows(2, 3);
  EXPECT_TRUE(part.classes.equal(top.classes.narrow(0, 2, 3)));
}

TEST(TopK, refuses_files_and_sizes_that_mean_nothing) {
  const hone::test::TemporaryFolder folder;
  const auto path = folder.path() / "top.safetensors";
  const TopK good = top_k_of(teacher(), 3, 2);
  const auto refusal = [&](const std::function<void(Tensor & classes, Tensor & log_probs)>& change,
                           const char* of = "9", const char* temperature = "2") {
    Tensor classes = good.classes.clone(), log_probs = good.log_probs.clone();
    change(classes, log_probs);
    write_tensors(path, {{"classes", classes}, {"log_probs", log_probs}},
                  {{"hone.temperature", temperature}, {"hone.classes", of}});
    return error_of([&] { read_top_k(path); });
  };
  const auto nothing = [](Tensor&, Tensor&) {};
  EXPECT_EQ(refusal(nothing), "no error");
  EXPECT_THAT(refusal([](Tensor& c, Tensor&) { c[0][0] = 9; }), HasSubstr("in range"));
  EXPECT_THAT(refusal([](Tensor& c, Tensor&) { c[0][0] = -1; }), HasSubstr("in range"));
  EXPECT_THAT(refusal([](Tensor& c, Tensor&) { c[0][0] = c[0][1].clone(); }), HasSubstr("twice"));
  EXPECT_THAT(refusal([](Tensor&, Tensor& p) { p[0][0] = 0.5; }), HasSubstr("at most 1"));
  EXPECT_THAT(
      refusal([](Tensor&, Tensor& p) { p[0][0] = -std::numeric_limits<float>::infinity(); }),
      HasSubstr("finite"));
  EXPECT_THAT(refusal([](Tensor& c, Tensor&) { c = c.to(at::kLong); }), HasSubstr("int32"));
  EXPECT_THAT(refusal([](Tensor&, Tensor& p) { p = p.narrow(1, 0, 2).contiguous(); }),
              HasSubstr("same shape"));
  EXPECT_THAT(refusal(nothing, "3"), HasSubstr("below the number"));
  EXPECT_THAT(refusal(nothing, "x"), HasSubstr("hone.classes"));
  EXPECT_THAT(refusal(nothing, "9", "-1"), HasSubstr("temperature"));
  EXPECT_THAT(error_of([&] { read_top_k(folder.path() / "none"); }), HasSubstr("none"));
  write_text_file(path, "text");
  EXPECT_THAT(error_of([&] { read_top_k(path); }), HasSubstr("top.safetensors"));
  for (const Index k : {0, 9, -1}) {
    EXPECT_THAT(error_of([&] { top_k_of(teacher(), k, 1); }), HasSubstr("k of 1")) << k;
  }
  EXPECT_THAT(error_of([&] { top_k_distillation_sums(student().narrow(0, 0, 2), good, {}); }),
              HasSubstr("logits"));
}

}  // namespace
}  // namespace hone::loss
