// SPDX-License-Identifier: Apache-2.0
// Moving averages of the buffers that a task lists with its weights.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "hone/core/error.h"
#include "hone/train/optim/averaged_weights.h"
#include "hone/train/optim/lr/decay_lr.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/trainer/checkpoint.h"
#include "hone/train/trainer/trainer.h"
#include "tests/support/error_of.h"
#include "tests/support/stop_flag.h"
#include "tests/support/test_data.h"

namespace hone::trainer {
namespace {

using torch::Tensor;

constexpr double kAverageDecay = 0.9, kMeanRate = 0.1;

// Follows the number of the step, and keeps a running mean of it as a normalization does.
class Follows final : public Task {
 public:
  LossSum micro_batch(Index step, Index) override {
    if (step == stop_at) stop = true;
    const auto x = static_cast<double>(step + 1);
    mean.mul_(1 - kMeanRate).add_(kMeanRate * x);
    count.add_(1);
    return {(w - x).square().sum().to(at::kDouble), 1};
  }
  double nominal_weight() const override { return 1; }
  Validation validate(bool, const BatchDone&) override {
    seen = mean.clone();
    return {.loss = 1};
  }
  std::vector<CheckpointTensor> weights() override {
    return {{"w", w}, {"mean", mean}, {"count", count}};
  }

  Index stop_at = -1;
  hone::test::StopFlag stop{false};
  Tensor w = at::zeros({3}).requires_grad_(), mean = at::zeros({3}), seen;
  Tensor count = at::zeros({}, at::kLong);
};

TrainerOptions options_in(const test::TemporaryFolder& folder) {
  TrainerOptions options;
  options.steps = 40;
  options.folder = folder.path();
  options.ema_decay = kAverageDecay;
  return options;
}

std::optional<TrainResult> run(Follows& task, const TrainerOptions& options, bool resume) {
  optim::SGD optimizer({task.w}, optim::SGDOptions(0.1));
  optim::ExponentialLR scheduler(optimizer, 1);
  Trainer trainer(options);
  if (resume) EXPECT_TRUE(trainer.resume(task, optimizer, scheduler));
  try {
    return trainer.fit(task, optimizer, scheduler, task.stop);
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::Cancelled) << error.what();
  }
  return std::nullopt;
}

TEST(AveragedBuffers, are_what_is_validated_and_go_on_after_an_interruption) {
  const test::TemporaryFolder folder, other;
  Follows whole, first, second;
  const auto result = run(whole, options_in(folder), false);
  double mean = 0, average = 0;
  for (Index step = 0; step < 40; ++step) {
    mean = (1 - kMeanRate) * mean + kMeanRate * static_cast<double>(step + 1);
    const auto t = static_cast<double>(step);
    const double decay = std::min(kAverageDecay, (1 + t) / (10 + t));
    average = step == 0 ? mean : decay * average + (1 - decay) * mean;
  }
  EXPECT_NEAR(whole.seen[0].item<double>(), average, 1e-4);
  EXPECT_NEAR(whole.mean[0].item<double>(), mean, 1e-4);
  EXPECT_GT(mean - average, 1);
  ASSERT_TRUE(result);
  ASSERT_EQ(result->averaged_buffers.size(), 1u) << "counters have no average";
  EXPECT_TRUE(at::equal(result->averaged_buffers[0].average, whole.seen));

  first.stop_at = 17;
  EXPECT_FALSE(run(first, options_in(other), false));
  ASSERT_TRUE(run(second, options_in(other), true));
  EXPECT_TRUE(at::equal(second.seen, whole.seen));
  EXPECT_TRUE(at::equal(second.mean, whole.mean));
}

TEST(Resume, of_a_checkpoint_that_another_version_wrote_is_refused_by_name) {
  const auto refused = [](const auto& change) {
    const test::TemporaryFolder folder;
    Follows task, later;
    task.stop_at = 5;
    EXPECT_FALSE(run(task, options_in(folder), false));
    CheckpointStore store(folder.path() / "checkpoints");
    Checkpoint checkpoint = *store.load_newest();
    change(checkpoint);
    store.clear();
    store.save(checkpoint, 2, std::nullopt);
    optim::SGD optimizer({later.w}, optim::SGDOptions(0.1));
    optim::ExponentialLR scheduler(optimizer, 1);
    Trainer trainer(options_in(folder));
    const std::string message = test::refusal([&] { trainer.resume(later, optimizer, scheduler); },
                                              ErrorCategory::CorruptFile);
    EXPECT_TRUE(at::equal(later.w.detach(), at::zeros({3}))) << message;
    return message;
  };
  using testing::HasSubstr;
  EXPECT_THAT(refused([](Checkpoint& c) {
                c.state.push_back({"optimizer.x.step", at::ones({})});
              }),
              HasSubstr("optimizer.x.step"));
  EXPECT_THAT(refused([](Checkpoint& c) {
                c.state.push_back({"optimizer.99999999999999999999.step", at::ones({})});
              }),
              HasSubstr("9999"));
  EXPECT_THAT(refused([](Checkpoint& c) { c.facts.erase("steps_taken"); }), HasSubstr("version"));
  EXPECT_THAT(refused([](Checkpoint& c) { c.facts["best_step"] = "first"; }), HasSubstr("version"));
}

}  // namespace
}  // namespace hone::trainer
