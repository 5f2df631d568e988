// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/find_batch_size.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <cmath>
#include <map>
#include <memory>

#include "hone/core/check.h"
#include "hone/core/error.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/optim/adam.h"
#include "hone/train/task/lm/lm_config.h"
#include "hone/train/task/lm/lm_task.h"
#include "hone/train/trainer/probe_step.h"

namespace hone::trainer {
namespace {

using torch::Tensor;

constexpr Index kWidth = 256;

// Squared error through two layers with dropout, and a buffer that every forward pass changes.
class Layers final : public Task {
 public:
  Layers() {
    at::manual_seed(3);
    for (Tensor* weight : {&a_, &b_}) *weight = at::randn({kWidth, kWidth}).requires_grad_(true);
    bias_ = at::zeros({kWidth}).requires_grad_(true);
  }
  LossSum micro_batch(Index, Index) override { return loss_of(largest_sample()); }
  LossSum loss_of(const std::vector<Tensor>& batch) override {
    sizes.push_back(batch[0].size(0));
    calls_.add_(1);
    const Tensor hidden = at::dropout(at::tanh(at::mm(batch[0], a_) + bias_), 0.1, /*train=*/true);
    if (on_forward) on_forward(batch[0].size(0));
    return {(at::mm(hidden, b_) - batch[1]).square().sum().to(at::kDouble),
            static_cast<double>(batch[0].size(0))};
  }
  std::vector<Tensor> largest_sample() override {
    return {at::ones({3, kWidth}), at::zeros({3, kWidth})};
  }
  double nominal_weight() const override { return 3; }
  Validation validate(bool, const BatchDone&) override { return {}; }
  std::vector<CheckpointTensor> weights() override {
    return {{"a", a_}, {"b", b_}, {"bias", bias_}, {"calls", calls_}};
  }
  std::vector<Tensor> parameters() const { return {a_, b_, bias_}; }

  std::vector<Index> sizes;
  std::function<void(Index size)> on_forward;

 private:
  Tensor a_, b_, bias_, calls_ = at::zeros({1});
};

optim::AdamW make_adamw(const Layers& task) {
  return optim::AdamW(task.parameters(), optim::AdamWOptions(1e-3));
}

// All that a probe might change.
std::vector<Tensor> everything(Layers& task, const optim::AdamW& optimizer) {
  std::vector<Tensor> out = {at::detail::getDefaultCPUGenerator().get_state()};
  for (const CheckpointTensor& weight : task.weights()) {
    out.push_back(weight.value.detach().clone());
    if (weight.value.grad().defined()) out.push_back(weight.value.grad().clone());
  }
  for (const optim::NamedState& entry : optimizer.export_state())
    out.push_back(entry.value.clone());
  return out;
}

void expect_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << i;
}

Index counted_bytes(const Tensor& tensor) {
  return memory::MemoryMeter::counts(tensor) ? static_cast<Index>(tensor.nbytes()) : 0;
}

void drop_gradients(Layers& task) {
  for (Tensor& parameter : task.parameters()) parameter.mutable_grad() = Tensor();
}

// Peak of a fresh model's second training step, measured on its own.
Index peak_of(Index size) {
  memory::MemoryMeter meter;
  const Index base = meter.use().current;
  Layers task;
  optim::AdamW optimizer = make_adamw(task);
  for (const Index rows : {Index{1}, size}) {
    drop_gradients(task);
    meter.reset_peak();
    const Tensor x = at::ones({rows, kWidth}), y = at::zeros({rows, kWidth});
    const LossSum loss = task.loss_of({x, y});
    (loss.sum / loss.weight).backward();
    optimizer.step_with({});
  }
  return meter.use().peak - base;
}

TEST(FindBatchSize, finds_the_largest_size_that_a_limit_admits_and_undoes_every_step) {
  for (const bool stepped_before : {false, true}) {
    for (const Index want : {1, 7, 64, 100, 777, 1024}) {
      const memory::MemoryMeter meter;
      Layers task;
      optim::AdamW optimizer = make_adamw(task);
      if (stepped_before) {
        task.micro_batch(0, 0).sum.backward();
        optimizer.step_with({});
        drop_gradients(task);
      }
      // Room for `want` and half of one more.
      const Index peak = peak_of(want), more = peak_of(want + 1);
      ASSERT_GT(more, peak);
      const auto before = everything(task, optimizer);
      Index others = meter.use().current;  // of this test
      for (const auto& weight : task.weights()) others -= counted_bytes(weight.value);
      for (const auto& entry : optimizer.export_state()) {
        if (entry.value.numel() > 1) others -= counted_bytes(entry.value);
      }
      const auto sample = task.largest_sample();
      others += counted_bytes(sample[0]) + counted_bytes(sample[1]);
      task.sizes.clear();
      const BatchSearch found = find_batch_size(
          task, optimizer, sample, {.limit = 1, .budget_bytes = others + (peak + more) / 2});
      EXPECT_EQ(found.batch, want);
      EXPECT_LE(found.probes.size(), 2 * 10u + 2);
      ASSERT_EQ(task.sizes.size(), found.probes.size() + 1);
      for (std::size_t i = 0; i < found.probes.size(); ++i) {
        EXPECT_EQ(task.sizes[i + 1], found.probes[i].size) << "exactly the tested size";
      }
      expect_equal(before, everything(task, optimizer));
    }
  }
}

TEST(FindBatchSize, probes_in_the_precision_and_with_the_averages_of_the_run) {
  const auto peak_with = [](const ProbeOptions& probe) {
    Layers task;
    optim::AdamW optimizer = make_adamw(task);
    const bool narrow = probe.amp.precision == "bf16";
    task.on_forward = [&](Index) {
      EXPECT_EQ(at::autocast::is_autocast_enabled(at::kCPU), narrow);
    };
    const BatchSearch found = find_batch_size(task, optimizer, task.largest_sample(),
                                              {.start = 4, .low = 4, .high = 4, .probe = probe});
    EXPECT_TRUE(optimizer.export_state().empty());
    return found.probes.back().peak_bytes;
  };
  const Index weights = (2 * kWidth * kWidth + kWidth) * Index{sizeof(float)};
  const Index plain = peak_with({});
  EXPECT_NEAR(static_cast<double>(peak_with({.ema_decay = 0.99}) - plain),
              static_cast<double>(weights), 4096.0);
  peak_with({.amp = {.precision = "bf16"}});
}

TEST(FindBatchSize, is_an_error_where_nothing_fits_and_leaves_all_as_it_was) {
  Layers task;
  optim::AdamW optimizer = make_adamw(task);
  const auto before = everything(task, optimizer);
  const auto category = [&](const BatchSearchOptions& options) {
    try {
      find_batch_size(task, optimizer, task.largest_sample(), options);
    } catch (const Error& error) {
      return error.category();
    }
    return ErrorCategory::Cancelled;
  };
  EXPECT_EQ(category({.limit = 1, .budget_bytes = 1000}), ErrorCategory::Resource);
  EXPECT_EQ(category({.start = 8, .low = 8, .budget_bytes = 1000}), ErrorCategory::Resource);
  EXPECT_EQ(category({.low = 0}), ErrorCategory::InvalidArgument);
  EXPECT_EQ(category({.limit = 1.5}), ErrorCategory::InvalidArgument);
  expect_equal(before, everything(task, optimizer));
}

// One layer 20 times over: gradients add up in the engine's queues, where memory runs out too.
class Deep final : public Task {
 public:
  Deep() {
    at::manual_seed(3);
    weights_ = {at::randn({64, 64}).requires_grad_(true), at::zeros({64}).requires_grad_(true)};
  }
  LossSum micro_batch(Index, Index) override { return loss_of(largest_sample()); }
  LossSum loss_of(const std::vector<Tensor>& batch) override {
    Tensor x = batch[0];
    for (int i = 0; i < 20; ++i) x = at::linear(x, weights_[0], weights_[1]).tanh();
    return {x.square().sum().to(at::kDouble), static_cast<double>(batch[0].size(0))};
  }
  std::vector<Tensor> largest_sample() override { return {at::ones({1, 64})}; }
  double nominal_weight() const override { return 1; }
  Validation validate(bool, const BatchDone&) override { return {}; }
  std::vector<CheckpointTensor> weights() override {
    std::vector<CheckpointTensor> out;
    for (const Tensor& weight : weights_) out.push_back({concat("w", out.size()), weight});
    return out;
  }
  const std::vector<Tensor>& parameters() const { return weights_; }

 private:
  std::vector<Tensor> weights_;
};

// A probe that failed leaves nothing behind that the next one is charged for.
TEST(FindBatchSize, the_answer_does_not_depend_on_where_the_search_starts) {
  for (const Index budget : {Index{180'000}, Index{300'000}}) {
    std::map<Index, Index> peaks;
    std::vector<Index> found;
    for (const Index start : {1, 12, 15, 64, 300, 1024}) {
      Deep task;
      optim::AdamW optimizer(task.parameters(), optim::AdamWOptions(1e-3));
      const BatchSearch search =
          find_batch_size(task, optimizer, task.largest_sample(),
                          {.start = start, .limit = 1, .budget_bytes = budget});
      found.push_back(search.batch);
      for (const BatchProbe& probe : search.probes) {
        if (!probe.fits) continue;
        EXPECT_EQ(peaks.emplace(probe.size, probe.peak_bytes).first->second, probe.peak_bytes)
            << probe.size << " from " << start;
      }
    }
    EXPECT_THAT(found, testing::Each(found.front())) << budget;
    EXPECT_GT(found.front(), 1);
  }
}

TEST(FindBatchSize, takes_what_allocators_throw_for_too_large_and_passes_other_errors_on) {
  Layers task;
  optim::AdamW optimizer = make_adamw(task);
  task.on_forward = [](Index size) {
    if (size > 20) throw std::bad_alloc();
  };
  const BatchSearch within = find_batch_size(task, optimizer, task.largest_sample(), {});
  EXPECT_EQ(within.batch, 20);
  EXPECT_FALSE(within.at_end);
  EXPECT_TRUE(find_batch_size(task, optimizer, task.largest_sample(), {.high = 20}).at_end);
  task.on_forward = [](Index size) {  // the real allocator, asked for 2^60 bytes
    if (size > 30) at::empty({Index{1} << 60}, at::kByte);
  };
  EXPECT_EQ(find_batch_size(task, optimizer, task.largest_sample(), {}).batch, 30);
  task.on_forward = [](Index) { throw std::runtime_error("a fault of the model"); };
  const auto before = everything(task, optimizer);
  EXPECT_THROW(find_batch_size(task, optimizer, task.largest_sample(), {}), std::runtime_error);
  task.on_forward = {};
  expect_equal(before, everything(task, optimizer));
}

TEST(FindBatchSize, tries_the_longest_document_of_a_language_model) {
  task::LmConfig config;
  config.model = {
      .hidden_size = 16, .intermediate_size = 24, .layers = 1, .heads = 2, .context = 32};
  std::vector<text::TokenId> tokens(60, 1);
  tokens[30] = 7;
  task::LmTask task(nn::Llama(task::make_architecture(config, 9), 3),
                    task::TokenWindows(text::TokenStream{tokens, {5, 26, 40, 60}}, 32, 1),
                    {text::TokenStream{tokens, {60}}, std::vector<Index>(9, 1)}, 2, 1, 10);
  EXPECT_EQ(task.largest_sample()[0].size(1), 21);  // and the token before
  const std::vector<Tensor> batch = replicate(task.largest_sample(), 5);
  EXPECT_EQ(batch[1].sizes(), (at::IntArrayRef{5, 21}));
  EXPECT_EQ(task.loss_of(batch).weight, 105);
}

}  // namespace
}  // namespace hone::trainer
