// SPDX-License-Identifier: Apache-2.0
// Every rule on the device against its double reference and against the same code on the host.
#include <gtest/gtest.h>

#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/lion.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "tests/kernels/cuda/device/device_tensors.cuh"
#include "tests/kernels/cuda/emulated_step.h"
#include "tests/kernels/cuda/rule_cases.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels::cuda::test {
namespace {

using hone::test::same_bits;
using kernels::test::kInfinity;
using kernels::test::kNan;

const std::vector<Index> kSizes{0, 1, 7, 1023, 16383, 16384, 16385, 1'000'003};

template <class Group>
std::span<double> correlations_for(DeviceTensors& tensors) {
  if constexpr (std::is_same_v<Group, TAMGroup>) return tensors.correlations();
  return {};
}

// Steps `rounds` times on the device; the set holds the result.
template <class Group>
void run_on_device(TensorSet& set, const TensorSetOptions& options, const Group& group,
                   Transport transport, Index rounds) {
  DeviceTensors tensors(set, options);
  const OwnedStream stream;
  const auto stepper =
      make_cuda_stepper<Group>(tensors.lists(), CudaStepOptions{.transport = transport});
  for (Index t = 1; t <= rounds; ++t) {
    set.set_step(t);
    stream.wait();
    tensors.upload_grads(set);
    stepper->step({&group, 1}, correlations_for<Group>(tensors), {}, stream);
  }
  stream.wait();
  tensors.download(set);
}

template <class Policy, class Reference>
void check_rule(const RuleCase<Policy>& rule, Index misalign, const Reference& reference) {
  constexpr Index kRounds = 100;
  TensorSetOptions options = rule.options;
  options.misalign = misalign;
  std::vector<std::vector<float>> first;
  for (const Transport transport : kTransports) {
    TensorSet set(kSizes, options);
    run_on_device(set, options, rule.group, transport, kRounds);
    EXPECT_EQ(set.step, std::vector<Index>(kSizes.size(), kRounds));
    if (first.empty()) {
      TensorSet start(kSizes, options);
      ReferenceRun run(start, options);
      for (Index t = 1; t <= kRounds; ++t) {
        start.set_step(t);
        run.step(start, t, reference);
      }
      run.expect_equal(set, kRounds, rule.name);
      first = set.snapshot();
    }
    EXPECT_TRUE(same_bits(set.snapshot(), first)) << rule.name << " " << name_of(transport);
  }
}

TEST(DeviceRules, match_the_double_reference_by_every_transport) {
  for_each_rule_case([](const auto& rule, const auto& reference) {
    check_rule(rule, 0, reference);
    check_rule(rule, 1, reference);
  });
}

TEST(DeviceRules, lion_equals_the_host_bit_for_bit) {
  const LionGroup group{.lr = 0x1p-10, .weight_decay = 0x1p-3};
  TensorSet device(kSizes), host(kSizes);
  run_on_device(device, {}, group, Transport::Auto, 20);
  EmulatedStepper<RulePolicy<LionGroup, scalar_rule::LionRule>> stepper{.groups = {group}};
  for (Index t = 1; t <= 20; ++t) {
    host.set_step(t);
    stepper.step<DeviceTable>(host.plan(), 1024);
  }
  EXPECT_TRUE(same_bits(device.snapshot(), host.snapshot()));
}

// m/g on a constant gradient, in both scopes.
TEST(DeviceRules, tam_on_a_constant_gradient_follows_the_closed_form) {
  for (const auto scope : {TAMScope::Tensor, TAMScope::Model}) {
    TensorSet set({100'003});
    std::ranges::fill(set.grad(0), 0.5f);
    DeviceTensors tensors(set, {});
    const TAMGroup group{.lr = 1e-3};
    const auto stepper = make_cuda_stepper<TAMGroup>(tensors.lists(), {.scope = scope});
    const OwnedStream stream;
    for (Index t = 1; t <= 100; ++t) {
      stepper->step({&group, 1}, tensors.correlations(), {}, stream);
      stream.wait();
      if (t > 3 && t != 10 && t != 100) continue;
      const double decayed = std::pow(0.9, t);
      const double wanted = 10 * (1 + 1e-8) * (1 - decayed) - 0.5 * t * decayed / 0.9;
      EXPECT_NEAR(tensors.read(Slot::Momentum, 0)[100'002] / 0.5, wanted, 1e-6 * wanted) << t;
      EXPECT_NEAR(tensors.read_correlations()[0], 1 - decayed / 0.9, 1e-9) << t;
    }
  }
}

// Gradients in bf16 with an fp32 master, its bf16 copy and its average.
TEST(DeviceRules, mixed_precision_equals_the_host_bit_for_bit) {
  constexpr Index kCount = 70'003;
  const TensorSetOptions options{.second_moment = true};
  TensorSet set({kCount}, options), host({kCount}, options);
  std::vector<BF16> grad(kCount), copy(kCount), copy_read(kCount);
  std::vector<float> average(kCount, 0.5f), average_read(kCount);
  for (std::size_t i = 0; i < grad.size(); ++i) narrow(host.grad(0)[i], grad[i]);
  DeviceTensors tensors(set, options);
  DeviceBuffer device_grad(kCount * 2), device_copy(kCount * 2), device_average(kCount * 4);
  copy_bytes(device_grad.as<void>(), grad.data(), kCount * 2, cudaMemcpyHostToDevice);
  copy_bytes(device_average.as<void>(), average.data(), kCount * 4, cudaMemcpyHostToDevice);
  const auto with = [&](MultiTensorLists lists, std::vector<TensorView>& views, void* g, void* e,
                        void* c) {
    views = {{g, Dtype::BFloat16, Shape{kCount}},
             {e, Dtype::Float32, Shape{kCount}},
             {c, Dtype::BFloat16, Shape{kCount}}};
    lists.grad = {&views[0], 1};
    lists.ema = {&views[1], 1};
    lists.copy = {&views[2], 1};
    return lists;
  };
  std::vector<TensorView> device_views, host_views;
  const auto lists = with(tensors.lists(), device_views, device_grad.as<void>(),
                          device_average.as<void>(), device_copy.as<void>());
  const AdamGroup group{.weight_decay = 0.01};
  const CudaStepControl control{.step = {.inv_scale = 0.25, .ema_decay = 0.875}};
  const auto stepper = make_cuda_stepper<AdamGroup>(lists, {});
  EmulatedStepper<RulePolicy<AdamGroup, scalar_rule::AdamRule>, BF16> emulated{.groups = {group}};
  emulated.control.values = {.inv_scale = 0.25, .ema_share = 0.125f};
  const OwnedStream stream;
  for (int t = 0; t < 3; ++t) {
    stepper->step({&group, 1}, {}, control, stream);
    emulated.step<DeviceTable>(
        MultiTensorPlan::build_or_throw(
            with(host.lists(), host_views, grad.data(), average.data(), copy.data())),
        1024);
  }
  stream.wait();
  tensors.download(set);
  EXPECT_TRUE(same_bits(set.snapshot(), host.snapshot()));
  copy_bytes(copy_read.data(), device_copy.as<void>(), kCount * 2, cudaMemcpyDeviceToHost);
  copy_bytes(average_read.data(), device_average.as<void>(), kCount * 4, cudaMemcpyDeviceToHost);
  EXPECT_EQ(std::memcmp(copy_read.data(), copy.data(), kCount * 2), 0);
  EXPECT_EQ(average_read, average);
}

TEST(DeviceStep, any_inf_or_nan_skips_and_leaves_every_bit) {
  const TensorSetOptions options{.second_moment = true};
  TensorSet set(std::vector<Index>(50, 1500), options);
  DeviceTensors tensors(set, options);
  const TAMGroup group{};
  DeviceBuffer found(4);
  const CudaStepControl control{.step = {.inv_scale = 0x1p-8, .grad = GradWriteBack::Zero},
                                .found_inf = found.as<float>()};
  const auto stepper = make_cuda_stepper<TAMGroup>(tensors.lists(), {});
  const OwnedStream stream;
  const auto step = [&] {
    fill_bytes(found, 0);
    stepper->step({&group, 1}, tensors.correlations(), control, stream);
    const StepReport report = stepper->read_report(stream);
    float flag = -1;
    copy_bytes(&flag, found.as<void>(), 4, cudaMemcpyDeviceToHost);
    EXPECT_EQ(flag, report.stepped ? 0.0f : 1.0f);
    return report;
  };
  EXPECT_TRUE(step().stepped);
  tensors.download(set);
  const auto before = set.snapshot();
  const auto correlation = tensors.read_correlations();
  for (Index tensor = 0; tensor < 50; ++tensor) {
    for (const std::size_t at : {0u, 750u, 1499u}) {
      const float kept = set.grad(tensor)[at];
      set.grad(tensor)[at] = at == 750 ? kNan : kInfinity;
      tensors.upload_grads(set);
      const StepReport report = step();
      EXPECT_FALSE(report.stepped);
      EXPECT_EQ(report.first_nonfinite_tensor, tensor);
      set.grad(tensor)[at] = kept;
    }
  }
  tensors.download(set);
  EXPECT_TRUE(same_bits(set.snapshot(), before));
  EXPECT_EQ(tensors.read_correlations(), correlation);
  EXPECT_EQ(set.step, std::vector<Index>(50, 1));
}

TEST(DeviceStep, a_norm_beyond_fp32_is_measured_and_clipped) {
  constexpr Index kCount = 10'000'000;
  TensorSet set({kCount}, {.momentum = false});
  std::ranges::fill(set.grad(0), 3e38f);
  DeviceTensors tensors(set, {.momentum = false});
  const SGDGroup group{.lr = 1};
  const auto stepper = make_cuda_stepper<SGDGroup>(tensors.lists(), {});
  const OwnedStream stream;
  stepper->step({&group, 1}, {}, {.step = {.clip_norm = 1, .skip_nonfinite = true}}, stream);
  const StepReport report = stepper->read_report(stream);
  const double norm = static_cast<double>(3e38f) * std::sqrt(double{kCount});
  EXPECT_TRUE(report.stepped);
  EXPECT_NEAR(report.grad_norm / norm, 1, 1e-6);
  EXPECT_NEAR(report.clip_coef * norm, 1, 1e-6);
}

TEST(DeviceStep, a_loss_scale_in_device_memory_is_divided_out) {
  TensorSet set({5000}), plain({5000});
  DeviceTensors tensors(set, {});
  for (float& g : set.grad(0)) g *= 1024;
  tensors.upload_grads(set);
  DeviceBuffer scale(4);
  const float value = 1024;
  copy_bytes(scale.as<void>(), &value, 4, cudaMemcpyHostToDevice);
  const SGDGroup group{.momentum = 0.9};
  const OwnedStream stream;
  make_cuda_stepper<SGDGroup>(tensors.lists(), {})
      ->step({&group, 1}, {}, {.loss_scale = scale.as<float>()}, stream);
  stream.wait();
  tensors.download(set);
  EmulatedStepper<RulePolicy<SGDGroup, scalar_rule::SGDMomentumRule>> host{.groups = {group}};
  host.step<DeviceTable>(plain.plan(), 1024);
  EXPECT_TRUE(same_bits(set.snapshot(), plain.snapshot()));
}

}  // namespace
}  // namespace hone::kernels::cuda::test
