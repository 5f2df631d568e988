// SPDX-License-Identifier: Apache-2.0
// Autocast as a scope, and whether it pays.
#include "hone/train/amp/autocast_guard.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "hone/core/machine/clock.h"
#include "hone/measure/measure.h"

namespace hone::amp {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr auto kCpu = c10::DeviceType::CPU;

at::ScalarType product_type() {
  return torch::mm(torch::ones({4, 4}), torch::ones({4, 4})).scalar_type();
}

TEST(AutocastGuard, names_the_type_and_device_that_ran_or_why_it_is_inactive) {
  {
    const AutocastGuard guard(kCpu, at::kBFloat16);
    EXPECT_TRUE(guard.report().active);
    EXPECT_EQ(guard.report().describe(), "cpu BFloat16");
    EXPECT_EQ(product_type(), guard.report().dtype);
  }
  {
    const AutocastGuard guard(kCpu, at::kBFloat16, false);
    EXPECT_EQ(guard.report().describe(), "inactive: not requested");
    EXPECT_EQ(product_type(), guard.report().dtype);
  }
  {
    const AutocastGuard guard(kCpu, at::kDouble);
    EXPECT_EQ(guard.report().describe(),
              "inactive: autocast runs in BFloat16 or Half, not in Double");
    EXPECT_EQ(product_type(), at::kFloat);
  }
  {
    const AutocastGuard guard(c10::DeviceType::XPU, at::kHalf);
    EXPECT_EQ(guard.report().describe(), "inactive: no xpu device");
  }
  const AutocastGuard guard(c10::DeviceType::Meta, at::kHalf);
  EXPECT_EQ(guard.report().describe(), "inactive: meta has no autocast");
}

TEST(AutocastGuard, guards_nest_and_an_inner_one_switches_off) {
  const AutocastGuard outer(kCpu, at::kBFloat16);
  {
    const AutocastGuard inner(kCpu, at::kBFloat16, false);
    EXPECT_EQ(product_type(), at::kFloat);
    {
      const AutocastGuard innermost(kCpu, at::kHalf);
      EXPECT_EQ(product_type(), innermost.report().dtype);
    }
    EXPECT_EQ(product_type(), at::kFloat);
  }
  EXPECT_EQ(product_type(), at::kBFloat16);
}

TEST(AutocastGuard, an_exception_restores_what_was_before) {
  const at::ScalarType type = at::autocast::get_autocast_dtype(kCpu);
  try {
    const AutocastGuard outer(kCpu, at::kHalf);
    const AutocastGuard inner(kCpu, at::kBFloat16);
    throw std::runtime_error("in the forward pass");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(kCpu));
  EXPECT_EQ(at::autocast::get_autocast_dtype(kCpu), type);
  EXPECT_EQ(product_type(), at::kFloat);
  at::autocast::increment_nesting();
  EXPECT_EQ(at::autocast::decrement_nesting(), 0) << "every level was left";
}

// A cached cast of a weight that was changed in place behind autograd's back would be stale.
TEST(AutocastGuard, the_cache_of_weights_is_kept_inside_and_dropped_at_the_outermost_exit) {
  torch::Tensor weight = torch::ones({4, 4}).requires_grad_();
  const torch::Tensor x = torch::ones({4, 4});
  const auto first = [&] { return torch::mm(x, weight)[0][0].item<float>(); };
  {
    const AutocastGuard outer(kCpu, at::kBFloat16);
    EXPECT_EQ(first(), 4);
    weight.data().fill_(2);
    {
      const AutocastGuard inner(kCpu, at::kBFloat16);
      EXPECT_EQ(first(), 4) << "the cached cast";
    }
    EXPECT_EQ(first(), 4) << "an inner guard drops nothing";
  }
  const AutocastGuard again(kCpu, at::kBFloat16);
  EXPECT_EQ(first(), 8);
}

// A forward that takes longer in the type where `slow` says so.
PrecisionChoice choose(bool slow_in_bf16) {
  const auto measurer = measure::make_measurer();
  const auto forward = [slow_in_bf16] {
    const bool slow = (product_type() == at::kBFloat16) == slow_in_bf16;
    std::this_thread::sleep_for(std::chrono::microseconds(slow ? 600 : 200));
  };
  return choose_precision(forward, kCpu, *measurer, {.max_seconds = 0.2});
}

TEST(Bf16IsFaster, is_decided_by_the_measured_forward) {
  const PrecisionChoice slower = choose(true), faster = choose(false);
  EXPECT_FALSE(slower.use_bf16);
  EXPECT_LT(slower.speedup.high, 1);
  EXPECT_THAT(slower.reason, StartsWith("fp32: bf16 runs the forward at 0."));
  EXPECT_TRUE(faster.use_bf16);
  EXPECT_GT(faster.speedup.low, 1);
  EXPECT_THAT(faster.reason, StartsWith("bf16: "));
}

TEST(Bf16IsFaster, is_false_with_the_reason_where_autocast_cannot_run) {
  const auto measurer = measure::make_measurer();
  int calls = 0;
  const auto forward = [&calls] { ++calls; };
  const auto choice = choose_precision(forward, c10::DeviceType::XPU, *measurer);
  EXPECT_FALSE(choice.use_bf16);
  EXPECT_EQ(choice.reason, "fp32: no xpu device");
  EXPECT_FALSE(bf16_is_faster(forward, c10::DeviceType::XPU, *measurer));
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace hone::amp
