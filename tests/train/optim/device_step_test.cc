// SPDX-License-Identifier: Apache-2.0
// The optimizers over tensors of a device. The device is the host's memory and the stepper the
// CPU's kernels, so that every number must be that of the optimizer without a device; the CUDA
// kernels have tests of their own. Where LibTorch has CUDA, on that too.
#include "hone/train/optim/device_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "hone/core/error.h"
#include "hone/train/interop.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/fused_cache.h"
#include "hone/train/optim/muon.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"
#include "tests/kernels/multi_tensor/tam_scope_step.h"
#include "tests/support/error_of.h"

namespace hone::optim {
namespace {

using hone::test::error_of;
using Tensors = std::vector<torch::Tensor>;
using testing::HasSubstr;

// What was asked of a device.
struct Calls {
  int follows = 0, steps = 0, reads = 0;
};

template <class Group>
StepReport step_on_host(const kernels::MultiTensorPlan& plan, std::span<const Group> groups,
                        std::span<double> correlation, const StepControl& control) {
  Executor& executor = libtorch_executor();
  if constexpr (std::is_same_v<Group, kernels::AdamGroup>) {
    return kernels::adam_step(plan, groups, control, executor);
  } else if constexpr (std::is_same_v<Group, kernels::SGDGroup>) {
    return kernels::sgd_step(plan, groups, control, executor);
  } else if constexpr (std::is_same_v<Group, kernels::LionGroup>) {
    return kernels::lion_step(plan, groups, control, executor);
  } else {
    const bool model = correlation.size() == 1 && plan.tensors() > 1;
    return kernels::tam_step(plan, groups, model ? TAMScope::Model : TAMScope::Tensor, correlation,
                             control, executor);
  }
}

template <class Group>
class HostStepper final : public kernels::CudaStepper<Group> {
 public:
  explicit HostStepper(Calls& calls) : calls_(calls) {}

  void follow(const kernels::MultiTensorLists& lists) override {
    ++calls_.follows;
    plan_ = kernels::MultiTensorPlan::build_or_throw(lists);
  }
  void store(std::span<const Group>, const kernels::CudaStepControl&, kernels::Stream) override {}
  kernels::CudaStepReport step(std::span<const Group> groups, std::span<double> correlation,
                               const kernels::CudaStepControl& control, kernels::Stream) override {
    ++calls_.steps;
    report_ = step_on_host(plan_, groups, correlation, control.step);
    return {};
  }
  StepReport read_report(kernels::Stream) override {
    ++calls_.reads;
    return report_;
  }

 private:
  Calls& calls_;
  kernels::MultiTensorPlan plan_;
  StepReport report_;
};

template <class Optimizer, class Group>
class OnDevice final : public Optimizer {
 public:
  template <class Options>
  OnDevice(const Tensors& params, const Options& options, Calls& calls)
      : Optimizer(params, options), calls_(calls) {}

 protected:
  std::unique_ptr<DeviceStep> make_device_step(c10::Device device) const override {
    const std::shared_ptr<kernels::CudaStepper<Group>> stepper =
        std::make_shared<HostStepper<Group>>(calls_);
    return std::make_unique<DeviceStep>(device, stepper);
  }

 private:
  Calls& calls_;
};

Tensors make_device_params() {
  torch::manual_seed(3);
  Tensors params{torch::rand({40, 17}), torch::rand({200, 100}), torch::rand({5, 3})};
  for (torch::Tensor& param : params) param.requires_grad_();
  return params;
}

// Elsewhere than the step before's; of parameter 2 in every third step only.
void set_device_gradients(Tensors& params, int step) {
  torch::manual_seed(500 + step);
  for (std::size_t i = 0; i < params.size(); ++i) {
    const torch::Tensor grad = torch::randn(params[i].sizes());
    params[i].mutable_grad() = i == 2 && step % 3 != 0 ? torch::Tensor() : grad;
  }
  if (step == 4) params[0].grad()[1][2] = std::numeric_limits<float>::quiet_NaN();
}

StepControl control_of(int step) {
  StepControl control;
  if (step % 2 == 0) control = {.inv_scale = 0.5, .clip_norm = 1, .skip_nonfinite = true};
  if (step >= 5) control.ema_decay = 0.9;
  if (step == 4) control.skip_nonfinite = true;
  return control;
}

void expect_same_state(const MultiTensorOptimizer& a, const MultiTensorOptimizer& b) {
  const std::vector<NamedState> ours = a.export_state(), theirs = b.export_state();
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].name, theirs[i].name);
    EXPECT_TRUE(ours[i].value.equal(theirs[i].value)) << ours[i].name << ' ' << ours[i].parameter;
  }
}

template <class Optimizer, class Group, class Options>
void check_like_the_cpu(const Options& options) {
  Tensors params = make_device_params(), wanted = make_device_params();
  Calls calls;
  OnDevice<Optimizer, Group> optimizer(params, options, calls);
  Optimizer reference(wanted, options);
  for (int t = 0; t < 12; ++t) {
    set_device_gradients(params, t);
    set_device_gradients(wanted, t);
    const StepReport a = optimizer.step_with(control_of(t));
    const StepReport b = reference.step_with(control_of(t));
    EXPECT_EQ(a.stepped, b.stepped) << t;
    EXPECT_EQ(a.stepped, t != 4) << t;
    if (a.stepped) {
      EXPECT_EQ(a.grad_norm, b.grad_norm) << t;
    }
    EXPECT_EQ(a.first_nonfinite_tensor, b.first_nonfinite_tensor) << t;
    EXPECT_EQ(optimizer.stats().correlation, reference.stats().correlation) << t;
    for (std::size_t i = 0; i < params.size(); ++i) {
      EXPECT_TRUE(params[i].equal(wanted[i])) << t << ' ' << i;
    }
  }
  expect_same_state(optimizer, reference);
  EXPECT_EQ(calls.steps, 12);
  EXPECT_EQ(calls.reads, 6);  // only where something was to be found
}

TEST(DeviceStep, adamw_steps_as_on_the_cpu) {
  check_like_the_cpu<AdamW, kernels::AdamGroup>(AdamWOptions(1e-2));
}
TEST(DeviceStep, sgd_steps_as_on_the_cpu) {
  check_like_the_cpu<SGD, kernels::SGDGroup>(SGDOptions(1e-2).momentum(0.9));
}
TEST(DeviceStep, tam_steps_as_on_the_cpu) {
  check_like_the_cpu<TAM, kernels::TAMGroup>(TAMOptions(1e-2));
  check_like_the_cpu<AdaTAMW, kernels::TAMGroup>(AdaTAMWOptions(1e-2));
}
TEST(DeviceStep, tam_of_the_whole_model_steps_as_on_the_cpu) {
  check_like_the_cpu<TAM, kernels::TAMGroup>(TAMOptions(1e-2).scope(TAMScope::Model));
}

TEST(DeviceStep, muon_steps_as_on_the_cpu) {
  Tensors params = make_device_params(), wanted = make_device_params();
  Calls calls;
  OnDevice<Muon, kernels::LionGroup> optimizer(params, MuonOptions(1e-2), calls);
  Muon reference(wanted, MuonOptions(1e-2));
  for (int t = 5; t < 9; ++t) {
    set_device_gradients(params, t);
    set_device_gradients(wanted, t);
    optimizer.step();
    reference.step();
    for (std::size_t i = 0; i < params.size(); ++i) EXPECT_TRUE(params[i].equal(wanted[i])) << t;
  }
  EXPECT_EQ(calls.steps, 4);
}

// The list is sent where tensors moved, not with every step.
TEST(DeviceStep, tensors_that_stay_are_not_sent_again) {
  Tensors params = make_device_params();
  Calls calls;
  OnDevice<AdamW, kernels::AdamGroup> optimizer(params, AdamWOptions(1e-2), calls);
  set_device_gradients(params, 0);
  for (int t = 0; t < 5; ++t) optimizer.step();
  EXPECT_EQ(calls.follows, 1);
  params[1].mutable_grad() = torch::randn({200, 100});
  optimizer.step();
  optimizer.step();
  EXPECT_EQ(calls.follows, 2);
}

// Archives and exported state have s; what is loaded counts, not what the device had.
TEST(DeviceStep, state_goes_to_archives_and_comes_back) {
  Tensors params = make_device_params(), wanted = make_device_params();
  Calls calls;
  OnDevice<TAM, kernels::TAMGroup> optimizer(params, TAMOptions(1e-2), calls);
  TAM reference(wanted, TAMOptions(1e-2));
  const auto step_both = [&](int t) {
    set_device_gradients(params, t);
    set_device_gradients(wanted, t);
    optimizer.step();
    reference.step();
  };
  for (int t = 5; t < 8; ++t) step_both(t);
  std::stringstream ours, theirs;
  torch::save(optimizer, ours);
  torch::save(reference, theirs);
  EXPECT_EQ(ours.str().size(), theirs.str().size());
  std::vector<NamedState> exported;
  for (NamedState entry : optimizer.export_state()) {
    entry.value = entry.value.clone();
    exported.push_back(entry);
  }
  for (int t = 8; t < 10; ++t) step_both(t);
  torch::load(optimizer, ours);
  torch::load(reference, theirs);
  expect_same_state(optimizer, reference);
  for (int t = 10; t < 12; ++t) step_both(t);
  expect_same_state(optimizer, reference);
  optimizer.import_state(exported);
  reference.import_state(exported);
  for (int t = 12; t < 14; ++t) step_both(t);
  expect_same_state(optimizer, reference);
}

// A first step that is skipped leaves no state; an archive that is none leaves all of it; a chain
// of operators in between finds s and leaves it.
TEST(DeviceStep, state_survives_skips_failed_loads_and_other_implementations) {
  Tensors params = make_device_params(), wanted = make_device_params();
  Calls calls;
  OnDevice<TAM, kernels::TAMGroup> optimizer(params, TAMOptions(1e-2), calls);
  TAM reference(wanted, TAMOptions(1e-2));
  const auto step_both = [&](int t) {
    set_device_gradients(params, t);
    set_device_gradients(wanted, t);
    optimizer.step_with(control_of(t));
    reference.step_with(control_of(t));
  };
  step_both(4);
  EXPECT_TRUE(optimizer.export_state().empty());
  for (int t = 5; t < 8; ++t) step_both(t);
  std::stringstream junk("no archive");
  EXPECT_ANY_THROW(torch::load(optimizer, junk));
  expect_same_state(optimizer, reference);
  step_both(8);
  for (const Implementation way : {Implementation::ForLoop, Implementation::Fused}) {
    for (auto* one : {static_cast<TAM*>(&optimizer), &reference}) {
      static_cast<TAMOptions&>(one->param_groups()[0].options()).implementation(way);
    }
    for (int t : {2, 3}) step_both(t);
    expect_same_state(optimizer, reference);
  }
}

// Counters that replays of a captured graph advance on the device alone, and one that the user
// sets.
TEST(DeviceStep, counters_of_the_device_are_fetched_and_those_of_the_user_sent) {
  Tensors params = make_device_params();
  Calls calls;
  OnDevice<AdamW, kernels::AdamGroup> optimizer(params, AdamWOptions(1e-2), calls);
  set_device_gradients(params, 0);
  optimizer.step();
  auto& state =
      static_cast<AdamWParamState&>(*optimizer.state().at(params[0].unsafeGetTensorImpl()));
  state.step(40);
  optimizer.step();
  EXPECT_EQ(state.step(), 41);
  const std::vector<NamedState> exported = optimizer.export_state();
  EXPECT_EQ(exported.front().value.item<std::int64_t>(), 41);
}

// ---- methods, rows and checked steps

// A bias, a small matrix, a large matrix and a large vector.
Tensors make_mixed_params() {
  torch::manual_seed(4);
  Tensors params{torch::rand({30}), torch::rand({5, 3}), torch::rand({200, 100}),
                 torch::rand({3000})};
  for (torch::Tensor& param : params) param.requires_grad_();
  return params;
}

void set_mixed_gradients(Tensors& params, int step) {
  torch::manual_seed(900 + step);
  for (std::size_t i = 0; i < params.size(); ++i) {
    const torch::Tensor grad = torch::randn(params[i].sizes());
    params[i].mutable_grad() = i == 2 && step % 4 == 3 ? torch::Tensor() : grad;
  }
}

// Bit by bit; rows where gradients are clipped within `bound`: the CPU rounds the scale at which it
// measures rows to fp32.
template <class Optimizer, class Options>
void check_method(const Options& options, double clip_norm, double bound) {
  Tensors params = make_mixed_params(), wanted = make_mixed_params();
  Calls calls;
  OnDevice<Optimizer, kernels::TAMGroup> optimizer(params, options, calls);
  Optimizer reference(wanted, options);
  for (int t = 0; t < 10; ++t) {
    set_mixed_gradients(params, t);
    set_mixed_gradients(wanted, t);
    StepControl control;
    if (t % 2 == 0) control = {.inv_scale = 0.5, .clip_norm = clip_norm, .skip_nonfinite = true};
    if (t > 5) control.ema_decay = 0.9;
    const StepReport report = optimizer.step_with(control);
    EXPECT_TRUE(report.stepped) << t;
    reference.step_with(control);
    EXPECT_NEAR(optimizer.stats().correlation, reference.stats().correlation, bound) << t;
    for (std::size_t i = 0; i < params.size(); ++i) {
      const double worst = (params[i] - wanted[i]).abs().max().template item<double>();
      EXPECT_LE(worst, bound) << t << ' ' << i;
    }
  }
  if (bound == 0) expect_same_state(optimizer, reference);
  EXPECT_EQ(calls.steps, 10);
}

TEST(DeviceStep, every_method_and_preset_of_tam_steps_as_on_the_cpu) {
  const auto auto_200 = [](auto options) {
    return options.correlation_method(CorrelationMethod::Auto).large_tensor_threshold(200);
  };
  for (const double clip_norm : {0.0, 1.0}) {
    const double bound = clip_norm == 0 ? 0 : 1e-6;
    check_method<TAM>(TAMOptions(1e-2).scope(TAMScope::Row), clip_norm, bound);
    check_method<TAM>(TAMOptions(1e-2).scope(TAMScope::Row).weight_decay(0.1), clip_norm, bound);
    check_method<TAM>(auto_200(TAMOptions(1e-2)), clip_norm, bound);
    check_method<TAM>(TAMOptions::large_model(1e-2), clip_norm, bound);
    check_method<TAM>(TAMOptions::high_performance(1e-2), clip_norm, bound);
    check_method<AdaTAMW>(auto_200(AdaTAMWOptions(1e-3)).bias_correction(true), clip_norm, bound);
    check_method<AdaTAM>(auto_200(AdaTAMOptions(1e-3)).fixed_damping(0.7), clip_norm, bound);
    // No rows: the same bits with clipping too.
    check_method<TAM>(TAMOptions::stable(1e-2), clip_norm, 0);
    check_method<TAM>(TAMOptions(1e-2).correlation_method(CorrelationMethod::CosineSimilarity),
                      clip_norm, 0);
  }
}

// From the device to the CPU and back, by archives and by exported state.
TEST(DeviceStep, correlations_of_rows_move_between_device_and_cpu) {
  const TAMOptions options =
      TAMOptions(1e-2).correlation_method(CorrelationMethod::Auto).large_tensor_threshold(200);
  Tensors params = make_mixed_params(), wanted = make_mixed_params();
  Calls calls;
  OnDevice<TAM, kernels::TAMGroup> optimizer(params, options, calls);
  TAM reference(wanted, options);
  const auto step = [](MultiTensorOptimizer& one, Tensors& its_params, int t) {
    set_mixed_gradients(its_params, t);
    one.step();
  };
  for (int t = 0; t < 3; ++t) step(optimizer, params, t);
  const auto copy_values = [](const Tensors& from, Tensors& to) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i].set_data(from[i].detach().clone());
  };
  copy_values(params, wanted);
  reference.import_state(optimizer.export_state());
  for (int t = 3; t < 6; ++t) {
    step(optimizer, params, t);
    step(reference, wanted, t);
  }
  expect_same_state(optimizer, reference);
  step(reference, wanted, 6);
  std::stringstream archive;
  torch::save(reference, archive);
  torch::load(optimizer, archive);
  copy_values(wanted, params);
  for (int t = 7; t < 9; ++t) {
    step(optimizer, params, t);
    step(reference, wanted, t);
  }
  expect_same_state(optimizer, reference);
  for (std::size_t i = 0; i < params.size(); ++i) EXPECT_TRUE(params[i].equal(wanted[i])) << i;
}

template <class Optimizer, class Group, class Options>
void check_checked(const Options& options) {
  Tensors params = make_mixed_params(), wanted = make_mixed_params();
  Calls calls;
  OnDevice<Optimizer, Group> optimizer(params, options, calls);
  Optimizer reference(wanted, options);
  StepControl control{.checked = true, .grad = GradWriteBack::Zero, .ema_decay = 0.9};
  for (int t = 0; t < 6; ++t) {
    set_mixed_gradients(params, t);
    set_mixed_gradients(wanted, t);
    const bool bad = t == 0 || t == 4;
    if (bad) params[1].grad()[2][1] = wanted[1].grad()[2][1] = std::nanf("");
    const Tensors before{params[0].detach().clone(), params[1].grad().clone()};
    const StepReport report = optimizer.step_with(control);
    EXPECT_EQ(report.stepped, !bad) << t;
    const StepReport theirs = reference.step_with(control);
    EXPECT_EQ(theirs.stepped, !bad) << t;
    EXPECT_EQ(report.first_nonfinite_tensor, theirs.first_nonfinite_tensor) << t;
    if (bad) {
      EXPECT_TRUE(params[0].equal(before[0])) << t;
      EXPECT_TRUE(params[1].grad().allclose(before[1], 0, 0, true)) << t;
    }
    expect_same_state(optimizer, reference);
    for (std::size_t i = 0; i < params.size(); ++i) EXPECT_TRUE(params[i].equal(wanted[i])) << t;
  }
  EXPECT_EQ(optimizer.stats().skipped_steps, 2);
  EXPECT_EQ(calls.steps, 6);
}

TEST(DeviceStep, a_checked_step_that_is_not_finite_changes_nothing) {
  check_checked<AdamW, kernels::AdamGroup>(AdamWOptions(1e-2));
  check_checked<TAM, kernels::TAMGroup>(TAMOptions::stable(1e-2));
  check_checked<TAM, kernels::TAMGroup>(TAMOptions(1e-2).scope(TAMScope::Model));
  check_checked<AdaTAM, kernels::TAMGroup>(AdaTAMOptions(1e-3).scope(TAMScope::Row));
}

// Before anything is stepped, and again in the next step.
TEST(DeviceStep, rows_that_are_not_contiguous_are_refused) {
  Tensors params{torch::rand({4, 3}), torch::rand({3, 4}).t()};
  for (torch::Tensor& param : params) param.requires_grad_();
  Calls calls;
  OnDevice<TAM, kernels::TAMGroup> optimizer(params, TAMOptions(1e-2).scope(TAMScope::Row), calls);
  for (torch::Tensor& param : params) param.mutable_grad() = torch::ones_like(param);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(error_of([&] { optimizer.step(); }), HasSubstr("contiguous rows of parameter 1"));
  }
  EXPECT_EQ(calls.steps, 0);
  EXPECT_TRUE(optimizer.export_state().empty());
}

// ---- where LibTorch has CUDA ----

#define HONE_REQUIRE_CUDA()                                                        \
  if (!torch::cuda::is_available()) GTEST_SKIP() << "LibTorch has no CUDA device"; \
  static_assert(true, "")

Tensors on_cuda(const Tensors& params) {
  Tensors out;
  for (const torch::Tensor& param : params) {
    out.push_back(param.detach().to(at::kCUDA).requires_grad_());
  }
  return out;
}

template <class Optimizer, class Options>
void check_on_cuda(const Options& options) {
  Tensors wanted = make_device_params(), params = on_cuda(wanted);
  Optimizer optimizer(params, options), reference(wanted, options);
  for (int t = 0; t < 12; ++t) {
    set_device_gradients(wanted, t);
    for (std::size_t i = 0; i < params.size(); ++i) {
      const torch::Tensor& grad = wanted[i].grad();
      params[i].mutable_grad() = grad.defined() ? grad.to(at::kCUDA) : torch::Tensor();
    }
    const StepReport a = optimizer.step_with(control_of(t));
    const StepReport b = reference.step_with(control_of(t));
    EXPECT_EQ(a.stepped, b.stepped) << t;
    EXPECT_NEAR(optimizer.stats().correlation, reference.stats().correlation, 1e-6) << t;
    for (std::size_t i = 0; i < params.size(); ++i) {
      EXPECT_TRUE(params[i].cpu().allclose(wanted[i], 1e-5, 1e-6)) << t << ' ' << i;
    }
  }
}

TEST(DeviceStep, optimizers_on_cuda_go_where_the_cpu_goes) {
  HONE_REQUIRE_CUDA();
  check_on_cuda<AdamW>(AdamWOptions(1e-2));
  check_on_cuda<SGD>(SGDOptions(1e-2).momentum(0.9));
  check_on_cuda<TAM>(TAMOptions(1e-2));
  check_on_cuda<TAM>(TAMOptions(1e-2).scope(TAMScope::Model));
  check_on_cuda<AdaTAMW>(AdaTAMWOptions(1e-2));
  check_on_cuda<TAM>(TAMOptions::stable(1e-2));
  check_on_cuda<TAM>(TAMOptions(1e-2).scope(TAMScope::Row));
  check_on_cuda<TAM>(
      TAMOptions(1e-2).correlation_method(CorrelationMethod::Auto).large_tensor_threshold(200));
}

}  // namespace
}  // namespace hone::optim
