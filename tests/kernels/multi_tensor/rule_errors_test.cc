// SPDX-License-Identifier: Apache-2.0
// Every setting that makes no sense is refused by name, before anything changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "hone/core/check.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/rmsprop.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/multi_tensor/tam_scope_step.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels {
namespace {

using hone::test::same_bits;
using hone::test::TensorSet;
using test::error_of;
using testing::HasSubstr;

constexpr double kBad = std::numeric_limits<double>::quiet_NaN();
constexpr double kEndless = std::numeric_limits<double>::infinity();

template <class Group>
struct Field {
  const char* name;
  double Group::*member;
};

// Sets each field to each value; the message must name rule and field.
template <class Group>
void expect_refused(const char* op, std::initializer_list<Field<Group>> fields,
                    std::initializer_list<double> values) {
  for (const Field<Group>& field : fields) {
    for (const double value : values) {
      Group group;
      group.*field.member = value;
      EXPECT_THAT(error_of([&] { check_group(op, group); }),
                  HasSubstr(concat("[", op, "] expected ", field.name)))
          << value;
    }
  }
}

TEST(RuleRefuses, rates_and_decays_of_sgd) {
  expect_refused<SGDGroup>("sgd_step",
                           {{"lr", &SGDGroup::lr}, {"weight_decay", &SGDGroup::weight_decay}},
                           {-1e-300, kBad, kEndless, -kEndless});
  expect_refused<SGDGroup>("sgd_step", {{"momentum", &SGDGroup::momentum}},
                           {-0.1, 1, 1.5, kBad, kEndless});
  expect_refused<SGDGroup>("sgd_step", {{"finite dampening", &SGDGroup::dampening}},
                           {kBad, kEndless});
  EXPECT_THAT(error_of([] { check_group("sgd_step", SGDGroup{.nesterov = true}); }),
              HasSubstr("momentum above 0 and no dampening with nesterov, got momentum 0"));
  check_group("sgd_step", SGDGroup{.lr = 0, .momentum = 0.999, .dampening = -2});
}

TEST(RuleRefuses, rates_and_decays_of_adam) {
  expect_refused<AdamGroup>("adam_step",
                            {{"lr", &AdamGroup::lr},
                             {"eps", &AdamGroup::eps},
                             {"weight_decay", &AdamGroup::weight_decay}},
                            {-1e-300, kBad, kEndless});
  expect_refused<AdamGroup>("adam_step",
                            {{"beta1", &AdamGroup::beta1}, {"beta2", &AdamGroup::beta2}},
                            {-0.1, 1, kBad, kEndless});
  check_group("adam_step", AdamGroup{.lr = 0, .beta1 = 0, .beta2 = 0, .eps = 0});
}

TEST(RuleRefuses, rates_and_decays_of_tam) {
  expect_refused<TAMGroup>("tam_step",
                           {{"lr", &TAMGroup::lr},
                            {"eps", &TAMGroup::eps},
                            {"weight_decay", &TAMGroup::weight_decay},
                            {"eps_norm", &TAMGroup::eps_norm},
                            {"eps_corr", &TAMGroup::eps_corr}},
                           {-1e-300, kBad, kEndless});
  expect_refused<TAMGroup>("tam_step",
                           {{"momentum", &TAMGroup::momentum},
                            {"decay_rate", &TAMGroup::decay_rate},
                            {"beta2", &TAMGroup::beta2}},
                           {-0.1, 1, kBad, kEndless});
}

TEST(RuleRefuses, rates_and_decays_of_rmsprop) {
  expect_refused<RMSpropGroup>("rmsprop_step",
                               {{"lr", &RMSpropGroup::lr},
                                {"eps", &RMSpropGroup::eps},
                                {"weight_decay", &RMSpropGroup::weight_decay}},
                               {-1e-300, kBad, kEndless});
  expect_refused<RMSpropGroup>(
      "rmsprop_step", {{"alpha", &RMSpropGroup::alpha}, {"momentum", &RMSpropGroup::momentum}},
      {-0.1, 1, kBad, kEndless});
  check_group("rmsprop_step", RMSpropGroup{.lr = 0, .alpha = 0, .eps = 0});
}

// A step of each rule on a set, as a sentence.
std::string sgd(TensorSet& set, std::vector<SGDGroup> groups, const StepControl& control = {}) {
  const MultiTensorPlan plan = set.plan();
  return error_of([&] { sgd_step(plan, groups, control, serial_executor()); });
}
std::string adam(TensorSet& set, std::vector<AdamGroup> groups) {
  const MultiTensorPlan plan = set.plan();
  return error_of([&] { adam_step(plan, groups, {}, serial_executor()); });
}
std::string tam(TensorSet& set, std::vector<TAMGroup> groups, TAMScope scope,
                std::vector<double> s) {
  const MultiTensorPlan plan = set.plan();
  return error_of([&] { tam_step(plan, groups, scope, s, {}, serial_executor()); });
}

TEST(RuleRefuses, slots_that_are_missing_or_too_many) {
  TensorSet none({9}, {.momentum = false}), momentum({9});
  TensorSet second({9}, {.momentum = false, .second_moment = true});
  TensorSet both({9}, {.second_moment = true}), all({9}, {.second_moment = true, .extra = true});
  TensorSet extra({9}, {.extra = true});
  EXPECT_THAT(sgd(momentum, {{}}), HasSubstr("[sgd_step] expected no momentum list, got one"));
  EXPECT_THAT(sgd(none, {{.momentum = 0.5}}), HasSubstr("expected a momentum list, got none"));
  EXPECT_THAT(sgd(second, {{}}), HasSubstr("no second_moment list"));
  EXPECT_THAT(sgd(extra, {{.momentum = 0.5}}), HasSubstr("no extra list"));
  EXPECT_THAT(adam(second, {{}}), HasSubstr("[adam_step] expected a momentum list"));
  EXPECT_THAT(adam(momentum, {{}}), HasSubstr("expected a second_moment list"));
  EXPECT_THAT(adam(all, {{}}), HasSubstr("expected no extra list"));
  EXPECT_THAT(adam(both, {{.amsgrad = true}}), HasSubstr("expected a extra list"));
  EXPECT_THAT(tam(none, {{}}, TAMScope::Tensor, {0}),
              HasSubstr("[tam_step] expected a momentum list"));
  EXPECT_THAT(tam(extra, {{}}, TAMScope::Tensor, {0}), HasSubstr("expected no extra list"));
}

TEST(RuleRefuses, groups_that_are_not_there_or_disagree) {
  TensorSet set({9, 9}, {.second_moment = true, .extra = true});
  set.group[1] = 2;
  EXPECT_THAT(adam(set, {{.amsgrad = true}, {.amsgrad = true}}),
              HasSubstr("a group below 2 for tensor 1, got 2"));
  set.group[1] = 1;
  EXPECT_EQ(adam(set, {{.amsgrad = true}, {.amsgrad = true}}), "no error");
  TensorSet plain({9});
  EXPECT_THAT(sgd(plain, {}), HasSubstr("a group below 0 for tensor 0"));
  EXPECT_THAT(tam(plain, {}, TAMScope::Tensor, {0}), HasSubstr("a group below 0 for tensor 0"));
}

TEST(RuleRefuses, another_number_of_correlations_than_the_scope_has) {
  TensorSet set({9, 9, 9});
  EXPECT_THAT(tam(set, {{}}, TAMScope::Tensor, {0}), HasSubstr("3 correlation values, got 1"));
  EXPECT_THAT(tam(set, {{}}, TAMScope::Model, {0, 0, 0}), HasSubstr("1 correlation values, got 3"));
  EXPECT_EQ(tam(set, {{}}, TAMScope::Model, {0}), "no error");
  EXPECT_EQ(tam(set, {{}}, TAMScope::Tensor, {0, 0, 0}), "no error");
}

TEST(RuleRefuses, controls_without_meaning_before_anything_changes) {
  TensorSet set({50});
  const auto before = set.snapshot();
  const std::vector<SGDGroup> groups{{.lr = 1, .momentum = 0.5}};
  for (const double scale : {0.0, -1.0, kBad, kEndless, -kEndless})
    EXPECT_THAT(sgd(set, groups, {.inv_scale = scale}),
                HasSubstr("[multi_tensor step] expected a finite positive inv_scale"));
  for (const double norm : {-1.0, kBad, -kEndless})
    EXPECT_THAT(sgd(set, groups, {.clip_norm = norm}), HasSubstr("clip_norm of at least 0"));
  EXPECT_TRUE(same_bits(set.snapshot(), before));
  EXPECT_EQ(set.step[0], 0);
}

TEST(RuleRefuses, to_write_gradients_that_share_memory) {
  std::vector<float> shared(150, 1.0f);
  for (const Index shift : {0, 1, 99}) {
    TensorSet set({100, 50}, {.momentum = false});
    set.view_of(Slot::Grad, 0).data = shared.data();
    set.view_of(Slot::Grad, 1).data = shared.data() + shift;
    EXPECT_EQ(sgd(set, {{}}), "no error") << "reading is fine";
    for (const GradWriteBack grad : {GradWriteBack::Zero, GradWriteBack::Unscaled})
      EXPECT_THAT(sgd(set, {{}}, {.grad = grad}),
                  HasSubstr("[multi_tensor gradient write-back] expected grad of tensor"));
  }
  TensorSet apart({100, 50}, {.momentum = false});
  apart.view_of(Slot::Grad, 0).data = shared.data();
  apart.view_of(Slot::Grad, 1).data = shared.data() + 100;
  EXPECT_EQ(sgd(apart, {{}}, {.grad = GradWriteBack::Zero}), "no error");
  EXPECT_EQ(shared, std::vector<float>(150, 0.0f));
}

}  // namespace
}  // namespace hone::kernels
