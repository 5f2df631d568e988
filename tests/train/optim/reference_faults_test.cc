// SPDX-License-Identifier: Apache-2.0
// Faults of the reference versions of TAM that the optimizers must not have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "hone/core/file/file_io.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"

namespace hone::optim {
namespace {

using Tensors = std::vector<torch::Tensor>;

Tensors random_params(const std::vector<std::vector<std::int64_t>>& shapes) {
  torch::manual_seed(11);
  Tensors params;
  for (const auto& shape : shapes) params.push_back((torch::rand(shape) - 0.5).requires_grad_());
  return params;
}

void set_step_gradients(Tensors& params, int step) {
  torch::manual_seed(900 + step);
  for (torch::Tensor& param : params) param.mutable_grad() = torch::randn(param.sizes());
}

std::vector<TensorPlanEntry> plan_of(const TAMOptions& options, Tensors params) {
  TAM optimizer(params, options);
  set_step_gradients(params, 0);
  return optimizer.plan();
}

TEST(TamAuto, the_threshold_decides_what_auto_does) {
  for (const auto& [threshold, wanted] :
       {std::pair{999, "cosine_similarity"}, {1000, "manual"}, {1001, "manual"}}) {
    const auto options = TAMOptions(0.1)
                             .correlation_method(CorrelationMethod::Auto)
                             .large_tensor_threshold(threshold);
    EXPECT_EQ(plan_of(options, random_params({{1000}}))[0].method, wanted) << threshold;
    EXPECT_EQ(plan_of(options, random_params({{100, 10}}))[0].method,
              threshold == 999 ? "vectorized" : "manual");
  }
}

TEST(StridedTensors, any_layout_equals_the_contiguous_result) {
  for (const auto& options : {TAMOptions(0.01), TAMOptions(0.01).scope(TAMScope::Row),
                              TAMOptions(0.01).scope(TAMScope::Model),
                              TAMOptions(0.01).state_dtype(StateDtype::BFloat16)}) {
    torch::manual_seed(5);
    const torch::Tensor values = torch::rand({12, 8, 6, 6}), storage = torch::rand({12, 8, 6, 12});
    Tensors layouts{values.clone(), values.transpose(0, 1).contiguous().transpose(0, 1),
                    values.contiguous(at::MemoryFormat::ChannelsLast), storage.slice(3, 0, 6)};
    layouts[3].copy_(values);
    Tensors results;
    for (torch::Tensor& param : layouts) {
      param.requires_grad_();
      TAM optimizer({param}, options);
      for (int t = 0; t < 5; ++t) {
        torch::manual_seed(t);
        param.mutable_grad() = torch::randn(values.sizes());
        optimizer.step();
      }
      results.push_back(param.detach().contiguous());
    }
    // Sums run in memory order, so the cosine may differ in its last bits.
    const double bound = options.state_dtype() == StateDtype::Float32 ? 1e-6 : 3e-3;
    for (const torch::Tensor& result : results) {
      EXPECT_LE((result - results[0]).abs().max().item<double>(), bound);
    }
  }
}

// Every correlation that a step left behind.
std::vector<torch::Tensor> correlations_of(const MultiTensorOptimizer& optimizer) {
  std::vector<torch::Tensor> all;
  for (const NamedState& item : optimizer.export_state()) {
    if (item.name == "correlation") all.push_back(item.value);
  }
  return all;
}

TEST(TamMemory, the_cosine_of_a_tensor_is_one_double_and_a_step_allocates_nothing_of_its_size) {
  Tensors params = random_params({{640, 640}, {100'000}});
  TAM optimizer(params, TAMOptions(0.1));
  set_step_gradients(params, 0);
  optimizer.step();
  const auto correlations = correlations_of(optimizer);
  ASSERT_EQ(correlations.size(), 2u);
  for (const torch::Tensor& s : correlations) {
    EXPECT_EQ(s.numel(), 1);
    EXPECT_EQ(s.scalar_type(), at::kDouble);
  }
  const memory::MemoryMeter meter;
  const Index before = meter.use().current;
  meter.reset_peak();
  optimizer.step();
  EXPECT_EQ(meter.use().peak - before, 0) << "no tensor at all";
  EXPECT_LT(optimizer.stats().temporary_bytes, 64 * 2 + 24 * 509'600 / 16'384 + 100);
}

TEST(TamCheckedStep, fifty_checked_steps_are_fifty_plain_ones) {
  for (const CorrelationMethod method :
       {CorrelationMethod::Manual, CorrelationMethod::CosineSimilarity,
        CorrelationMethod::Vectorized, CorrelationMethod::Auto}) {
    Tensors plain = random_params({{70, 30}, {2000}}), checked = random_params({{70, 30}, {2000}});
    TAM a(plain, TAMOptions(0.01).correlation_method(method));
    TAM b(checked, TAMOptions(0.01).correlation_method(method).use_inplace_ops(false));
    for (int t = 0; t < 50; ++t) {
      set_step_gradients(plain, t);
      set_step_gradients(checked, t);
      a.step();
      b.step();
      const auto s = correlations_of(a), same = correlations_of(b);
      ASSERT_EQ(s.size(), same.size());
      for (std::size_t i = 0; i < s.size(); ++i) {
        EXPECT_LE(s[i].abs().max().item<double>(), 1);
        EXPECT_TRUE(s[i].equal(same[i])) << t;
        EXPECT_EQ(s[i].abs().max().item<double>() > 0, t > 0) << "the new cosine counts";
      }
    }
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(plain[i].equal(checked[i]));
  }
}

// State and temporaries of two steps, at their peak.
struct Bytes {
  Index state = 0, peak = 0;
};
Bytes bytes_of(const TAMOptions& options) {
  Tensors params = random_params({{1024, 1024}, {1024, 1024}, {1024, 2048}});
  set_step_gradients(params, 0);
  const memory::MemoryMeter meter;
  const Index before = meter.use().current;
  TAM optimizer(params, options);
  Index temporary = 0;
  for (int t = 0; t < 2; ++t) {
    optimizer.step();
    temporary = std::max(temporary, optimizer.stats().temporary_bytes);
  }
  Bytes bytes;
  for (const NamedState& item : optimizer.export_state()) {
    if (item.name != "step") bytes.state += static_cast<Index>(item.value.nbytes());
  }
  bytes.peak = meter.use().peak - before + temporary;
  return bytes;
}

TEST(TamPresets, memory_limited_takes_no_more_than_high_performance) {
  const Bytes limited = bytes_of(TAMOptions::memory_limited(0.01)),
              fast = bytes_of(TAMOptions::high_performance(0.01));
  EXPECT_LE(limited.state, fast.state / 2 + 1000);
  EXPECT_LE(limited.peak, fast.peak);
  EXPECT_GT(limited.peak, limited.state) << "the scratch of a checked step counts too";
}

TEST(TamShards, sharded_rows_exchange_nothing_and_tensors_three_sums) {
  const auto bytes = [](const TAMOptions& options) {
    std::vector<Index> all;
    for (const TensorPlanEntry& entry : plan_of(options, random_params({{40, 30}, {50}, {8, 20}})))
      all.push_back(entry.exchanged_bytes);
    return all;
  };
  using testing::ElementsAre;
  const auto scoped = [](TAMScope scope) { return TAMOptions(1).scope(scope); };
  EXPECT_THAT(bytes(TAMOptions(1)), ElementsAre(24, 24, 24)) << "scope Tensor";
  EXPECT_THAT(bytes(scoped(TAMScope::Model)), ElementsAre(24, 0, 0)) << "once";
  EXPECT_THAT(bytes(scoped(TAMScope::Row)), ElementsAre(0, 0, 0));
  EXPECT_THAT(bytes(TAMOptions(1).weight_decay(0.1)), ElementsAre(48, 48, 48));
  EXPECT_THAT(bytes(TAMOptions(1).weight_decay(0.1).decoupled_weight_decay(true)),
              ElementsAre(24, 24, 24));
  EXPECT_THAT(bytes(TAMOptions(1).fixed_damping(0.5)), ElementsAre(0, 0, 0));
}

// Third-party TAM never sums its products, so that each of n rows has a cosine of about 1/n: it is
// SGD with momentum at half the rate.
TEST(ReferenceFaults, a_cosine_that_is_never_summed_is_momentum_at_half_the_rate) {
  Tensors half = random_params({{500, 40}});
  const torch::Tensor start = half[0].detach().clone();
  torch::Tensor p = start.clone(), m = torch::zeros_like(p), s = torch::zeros_like(p);
  SGD sgd(half, SGDOptions(0.01).momentum(0.9));
  for (int t = 0; t < 100; ++t) {
    set_step_gradients(half, t);
    const torch::Tensor g = half[0].grad();
    const torch::Tensor norms = m.norm(2, 0).clamp_min(1e-8) * g.norm(2, 0).clamp_min(1e-8);
    s = 0.9 * s + 0.1 * (m * g / norms);
    m = 0.9 * m + (1 + s) / 2 * g;
    p = p - 0.02 * m;
    sgd.step();
  }
  const torch::Tensor way = half[0].detach() - start;
  EXPECT_LE((p - half[0].detach()).norm().item<double>(), 0.02 * way.norm().item<double>());
}

}  // namespace
}  // namespace hone::optim
