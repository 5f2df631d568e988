// SPDX-License-Identifier: Apache-2.0
// Groups of micro-batches that are not full, and what a run says its loss is.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <algorithm>
#include <numeric>
#include <stop_token>
#include <utility>
#include <vector>

#include "hone/core/philox.h"
#include "hone/train/optim/lr/decay_lr.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/trainer/metrics_log.h"
#include "hone/train/trainer/trainer.h"
#include "tests/support/test_data.h"

namespace hone::trainer {
namespace {

using test::TemporaryFolder;
using torch::Tensor;

constexpr Index kInputs = 16, kMicroBatches = 10, kSamples = 3, kGroup = 4;
constexpr double kRate = 0.125;

// Least squares over ten micro-batches, once: those that a last group lacks have no weight.
class Epoch final : public Task {
 public:
  Epoch() {
    PhiloxStream random(5);
    x_ = at::empty({kMicroBatches * kSamples, kInputs});
    y_ = at::empty({kMicroBatches * kSamples});
    for (Index i = 0; i < x_.numel(); ++i) x_.data_ptr<float>()[i] = random.uniform() - 0.5f;
    for (Index i = 0; i < y_.numel(); ++i) y_.data_ptr<float>()[i] = random.uniform();
    w_ = at::zeros({kInputs}).requires_grad_(true);
  }
  LossSum micro_batch(Index step, Index micro) override {
    const Index index = step * kGroup + micro;
    if (index >= kMicroBatches) return {w_.sum().to(at::kDouble) * 0, 0};
    seen.push_back(index);
    return {loss_sum(w_, index), kSamples};
  }
  double nominal_weight() const override { return kSamples; }
  Validation validate(bool, const BatchDone&) override { return {}; }
  std::vector<CheckpointTensor> weights() override { return {{"w", w_}}; }

  // Σ (x·w - y)²/2 over the samples of a micro-batch.
  Tensor loss_sum(const Tensor& w, Index index) const {
    const Tensor x = x_.narrow(0, index * kSamples, kSamples).to(w.scalar_type());
    const Tensor error = at::mv(x, w) - y_.narrow(0, index * kSamples, kSamples);
    return (error * error / 2).sum().to(at::kDouble);
  }

  std::vector<Index> seen;
  Tensor w_, x_, y_;
};

std::vector<MetricsRow> train(Task& task, Tensor w, Index steps, Index group, double rate) {
  const TemporaryFolder folder;
  TrainerOptions options;
  options.steps = steps;
  options.accumulation_steps = group;
  options.folder = folder.path();
  optim::SGD optimizer({w}, optim::SGDOptions(rate));
  optim::ExponentialLR scheduler(optimizer, 1);
  const std::stop_token go_on;
  Trainer(options).fit(task, optimizer, scheduler, go_on);
  return read_metrics(folder.path() / "metrics.csv");
}

TEST(Accumulation, ten_micro_batches_in_fours_are_three_steps_and_the_last_averages_over_two) {
  Epoch task;
  const auto rows = train(task, task.w_, 3, kGroup, kRate);
  ASSERT_EQ(rows.size(), 3u);
  std::vector<Index> all(kMicroBatches);
  std::iota(all.begin(), all.end(), Index{0});
  EXPECT_EQ(task.seen, all) << "each once, none dropped";
  // The same in fp64: each step's gradient is the mean over the samples that it has.
  Tensor w = at::zeros({kInputs}, at::kDouble);
  for (Index step = 0; step < 3; ++step) {
    const Tensor leaf = w.clone().requires_grad_(true);
    const Index first = step * kGroup, end = std::min(first + kGroup, kMicroBatches);
    Tensor sum = at::zeros({}, at::kDouble);
    for (Index i = first; i < end; ++i) sum = sum + task.loss_sum(leaf, i);
    const double samples = static_cast<double>((end - first) * kSamples);
    (sum / samples).backward();
    EXPECT_NEAR(rows[static_cast<std::size_t>(step)].loss, sum.item<double>() / samples, 1e-6);
    w = w - kRate * leaf.grad();
  }
  EXPECT_LE((task.w_.detach() - w).abs().max().item<double>(), 1e-6);
  EXPECT_GT(w.abs().max().item<double>(), 0.01);
}

// Every sample's loss is L; micro-batch m of a step has weights[m] samples.
class Constant final : public Task {
 public:
  explicit Constant(std::vector<double> weights) : weights_(std::move(weights)) {}
  LossSum micro_batch(Index, Index micro) override {
    const double weight = weights_[static_cast<std::size_t>(micro)];
    return {(w_.sum().to(at::kDouble) * 0 + kLoss) * weight, weight};
  }
  double nominal_weight() const override { return weights_.front(); }
  Validation validate(bool, const BatchDone&) override { return {}; }
  std::vector<CheckpointTensor> weights() override { return {{"w", w_}}; }

  static constexpr double kLoss = 2.5;
  Tensor w_ = at::zeros({4}).requires_grad_(true);

 private:
  std::vector<double> weights_;
};

TEST(Accumulation, a_constant_loss_is_reported_as_it_is_whatever_the_grouping) {
  using Weights = std::vector<double>;
  for (const Weights& weights : std::vector<Weights>{
           {8}, {8, 8, 8}, {8, 8, 8, 8}, {8, 8, 3}, {8, 8, 8, 1}, {5, 7, 0, 2}, {1, 100}}) {
    Constant task(weights);
    const auto rows = train(task, task.w_, 5, static_cast<Index>(weights.size()), 1);
    ASSERT_EQ(rows.size(), 5u);
    for (const MetricsRow& row : rows) EXPECT_DOUBLE_EQ(row.loss, Constant::kLoss);
  }
}

}  // namespace
}  // namespace hone::trainer
