// SPDX-License-Identifier: Apache-2.0
// Loss scaling, autocast and moving averages in the trainer.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stop_token>

#include "hone/core/check.h"
#include "hone/core/error.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/averaged_weights.h"
#include "hone/train/optim/lr/decay_lr.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/trainer/metrics_log.h"
#include "hone/train/trainer/trainer.h"
#include "tests/support/error_of.h"
#include "tests/support/stop_flag.h"
#include "tests/support/test_data.h"

namespace hone::trainer {
namespace {

using test::TemporaryFolder;
using testing::HasSubstr;
using torch::Tensor;

constexpr Index kSize = 5;

// ½‖w - step‖², whose gradient overflows above `most` as fp16's would.
class Chase final : public Task {
 public:
  LossSum micro_batch(Index step, Index) override {
    if (step + 1 == stop_after) stop = true;
    autocast = at::autocast::is_autocast_enabled(at::kCPU)
                   ? at::autocast::get_autocast_dtype(at::kCPU)
                   : at::kFloat;
    Tensor x = w + 0;  // a node whose gradient a hook may change
    if (x.requires_grad()) {
      x.register_hook([limit = most](const Tensor& gradient) {
        return at::where(gradient.abs() > limit, std::numeric_limits<float>::infinity(), gradient);
      });
    }
    const Tensor error = x - static_cast<double>(step + 1);
    return {(error * error / 2).sum().to(at::kDouble), 1};
  }
  double nominal_weight() const override { return 1; }
  Validation validate(bool, const BatchDone&) override {
    seen = w.detach().clone();
    return {.loss = 1};
  }
  std::vector<CheckpointTensor> weights() override { return {{"w", w}}; }

  double most = std::numeric_limits<double>::infinity();
  Tensor w = at::zeros({kSize}).requires_grad_(true), seen;
  at::ScalarType autocast = at::kFloat;
  Index stop_after = 0;
  hone::test::StopFlag stop{false};
};

TrainerOptions options_in(const TemporaryFolder& folder, Index steps) {
  TrainerOptions options;
  options.steps = steps;
  options.folder = folder.path();
  return options;
}

template <class Optimizer>
TrainResult fit(const TrainerOptions& options, Chase& task, Optimizer& optimizer,
                bool resume = false) {
  optim::ExponentialLR scheduler(optimizer, 1);
  Trainer trainer(options);
  if (resume) {
    EXPECT_TRUE(trainer.resume(task, optimizer, scheduler));
  }
  return trainer.fit(task, optimizer, scheduler, task.stop);
}

TEST(TrainerPrecision, forward_passes_run_in_the_autocast_type_and_validation_in_fp32) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const TemporaryFolder folder;
    Chase task;
    optim::SGD optimizer({task.w}, optim::SGDOptions(0.1));
    TrainerOptions options = options_in(folder, 1);
    options.amp.precision = type;
    fit(options, task, optimizer);
    EXPECT_EQ(task.autocast, type);
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  }
}

TEST(TrainerPrecision, a_loss_scale_that_is_a_power_of_two_changes_no_bit) {
  Tensor want;
  for (const bool scaled : {false, true}) {
    const TemporaryFolder folder;
    Chase task;
    optim::AdamW optimizer({task.w}, optim::AdamWOptions(0.1));
    TrainerOptions options = options_in(folder, 20);
    if (scaled) options.amp.scaler.emplace();
    fit(options, task, optimizer);
    if (scaled) {
      EXPECT_TRUE(at::equal(task.w.detach(), want));
    } else {
      want = task.w.detach();
    }
  }
}

TEST(TrainerPrecision, overflow_steps_are_skipped_and_logged_and_the_scale_backs_off) {
  const TemporaryFolder folder;
  Chase task;
  task.most = 20000;  // gradients reach 5: scale 65536, 32768, … 8192 overflow at first
  optim::SGD optimizer({task.w}, optim::SGDOptions(0.5));
  TrainerOptions options = options_in(folder, 12);
  options.amp.scaler.emplace();
  testing::internal::CaptureStderr();
  const TrainResult result = fit(options, task, optimizer);
  const std::string warning = testing::internal::GetCapturedStderr();
  const std::vector<MetricsRow> rows = read_metrics(folder.path() / "metrics.csv");
  ASSERT_EQ(rows.size(), 12u);
  const auto skipped =
      std::ranges::count_if(rows, [](const MetricsRow& row) { return std::isinf(row.grad_norm); });
  EXPECT_GT(skipped, 1);
  EXPECT_EQ(result.skipped_steps, skipped);
  EXPECT_THAT(warning, HasSubstr(concat(skipped, " of 12 steps were skipped")));
  EXPECT_EQ(rows[0].loss_scale, 65536);
  EXPECT_EQ(rows[1].loss_scale, 32768);
  EXPECT_LT(*rows[11].loss_scale, 32768);
  EXPECT_TRUE(std::isinf(rows[0].grad_norm));
  Index clean = 0;
  for (const MetricsRow& row : rows) {
    const bool overflowed = std::isinf(row.grad_norm);
    clean = overflowed ? 0 : clean + 1;
    EXPECT_EQ(row.found_inf, overflowed) << row.step;
    EXPECT_EQ(row.skipped, overflowed) << row.step;
    EXPECT_EQ(row.growth_tracker, clean) << row.step;
  }
  // The steps taken are those of the scale-free run over the same steps.
  double w = 0;
  for (const MetricsRow& row : rows) {
    if (std::isfinite(row.grad_norm)) w -= 0.5 * (w - static_cast<double>(row.step));
  }
  EXPECT_NEAR(task.w[0].item<double>(), w, 1e-5);
}

// The formulas of the reference suite on the history that metrics.csv has, also of a resumed run.
TEST(TrainerPrecision, result_has_the_statistics_of_the_whole_history_of_scales) {
  const TemporaryFolder folder;
  TrainResult result;
  for (const Index stop_after : {5, 0}) {
    Chase task;
    task.most = 20000;
    task.stop_after = stop_after;
    optim::SGD optimizer({task.w}, optim::SGDOptions(0.5));
    TrainerOptions options = options_in(folder, 12);
    options.amp.scaler.emplace();
    if (stop_after > 0) {
      EXPECT_THROW(fit(options, task, optimizer), Error);
    } else {
      result = fit(options, task, optimizer, true);
    }
  }
  const std::vector<MetricsRow> rows = read_metrics(folder.path() / "metrics.csv");
  ASSERT_EQ(rows.size(), 12u);
  double overflows = 0, sum = 0, squares = 0;
  for (const MetricsRow& row : rows) {
    overflows += *row.found_inf;
    sum += *row.loss_scale;
  }
  const double average = sum / 12;
  for (const MetricsRow& row : rows) squares += std::pow(*row.loss_scale - average, 2);
  const amp::AmpAnalysis& amp = result.amp;
  EXPECT_EQ(amp.steps, 12);
  EXPECT_GT(overflows, 1);
  EXPECT_DOUBLE_EQ(amp.overflow_rate.value(), overflows / 12);
  EXPECT_DOUBLE_EQ(amp.average_scale.value(), average);
  EXPECT_DOUBLE_EQ(amp.scale_variance.value(), squares / 12);
  EXPECT_DOUBLE_EQ(amp.scale_stability.value(), 1 / (1 + squares / 12 / (average * average)));
  // The elements of a gradient are alike.
  double largest = 0;
  for (const MetricsRow& row : rows) {
    if (std::isfinite(row.grad_norm))
      largest = std::max(largest, row.grad_norm / std::sqrt(static_cast<double>(kSize)));
  }
  const double scale = amp.recommended_scale.value();
  EXPECT_LE(2 * scale * largest, 65504);
  EXPECT_GT(4 * scale * largest, 65504);
  EXPECT_EQ(amp.precision, "fp32");
}

TEST(TrainerPrecision, result_of_a_run_without_a_scale_has_none) {
  const TemporaryFolder folder;
  Chase task;
  optim::SGD optimizer({task.w}, optim::SGDOptions(0.5));
  const TrainResult result = fit(options_in(folder, 3), task, optimizer);
  EXPECT_EQ(result.amp.steps, 0);
  EXPECT_FALSE(result.amp.average_scale || result.amp.recommended_scale);
}

TEST(TrainerPrecision, a_run_whose_gradients_overflow_at_every_scale_ends_with_one_sentence) {
  const TemporaryFolder folder;
  Chase task;
  task.most = -1;
  optim::SGD optimizer({task.w}, optim::SGDOptions(0.5));
  TrainerOptions options = options_in(folder, 100);
  options.amp.scaler.emplace();
  try {
    fit(options, task, optimizer);
    FAIL() << "went on";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("train step 25"));
    EXPECT_THAT(error.what(), HasSubstr("all of the last 25 steps"));
  }
  EXPECT_TRUE(at::equal(task.w.detach(), at::zeros({kSize})));
}

TEST(TrainerPrecision, a_run_without_a_step_taken_is_no_result) {
  const TemporaryFolder folder;
  Chase task;
  task.most = -1;
  optim::SGD optimizer({task.w}, optim::SGDOptions(0.5));
  TrainerOptions options = options_in(folder, 12);
  options.amp.scaler = amp::GradScalerOptions{.dynamic = false};
  const std::string said =
      test::refusal([&] { fit(options, task, optimizer); }, ErrorCategory::Internal);
  EXPECT_THAT(said, HasSubstr("All 12 steps were skipped"));
}

// ½‖w - step‖² whose gradient is NaN in the steps from `first` to `last`, counted from 1.
class Faulty final : public Task {
 public:
  Faulty(Index first, Index last) : first_(first), last_(last) {}

  LossSum micro_batch(Index step, Index) override {
    buffer += 1;
    const bool faulty = step + 1 >= first_ && step + 1 <= last_;
    const Tensor error = (w - static_cast<double>(step + 1)) * (faulty ? std::nan("") : 1);
    return {(error * error / 2).sum().to(at::kDouble), 1};
  }
  double nominal_weight() const override { return 1; }
  Validation validate(bool, const BatchDone&) override { return {.loss = 1}; }
  std::vector<CheckpointTensor> weights() override { return {{"w", w}, {"buffer", buffer}}; }
  void restore_buffers() override { buffer -= 1; }

  Tensor w = at::zeros({kSize}).requires_grad_(true), buffer = at::zeros({1});

 private:
  Index first_, last_;
};

TrainResult fit(const TrainerOptions& options, Faulty& task, bool resume = false) {
  optim::SGD optimizer({task.w}, optim::SGDOptions(0.5));
  optim::ExponentialLR scheduler(optimizer, 1);
  Trainer trainer(options);
  if (resume) {
    EXPECT_TRUE(trainer.resume(task, optimizer, scheduler));
  }
  return trainer.fit(task, optimizer, scheduler, std::stop_token{});
}

TEST(SkippedSteps, change_nothing_and_are_counted_and_logged_by_step) {
  const TemporaryFolder folder;
  Faulty task(4, 6);
  TrainerOptions options = options_in(folder, 10);
  options.amp.skip_nonfinite = true;
  testing::internal::CaptureStderr();
  const TrainResult result = fit(options, task);
  const std::string log = testing::internal::GetCapturedStderr();
  double w = 0;
  for (const int step : {1, 2, 3, 7, 8, 9, 10}) w -= 0.5 * (w - step);
  EXPECT_NEAR(task.w[0].item<double>(), w, 1e-5);
  EXPECT_EQ(task.buffer.item<double>(), 7);
  EXPECT_EQ(result.skipped_steps, 3);
  for (const char* said : {"[train step 4] The gradient of parameter 0 is not finite", "step 5]",
                           "step 6]", "3 of 10 steps were skipped"}) {
    EXPECT_THAT(log, HasSubstr(said));
  }
  const std::vector<MetricsRow> rows = read_metrics(folder.path() / "metrics.csv");
  ASSERT_EQ(rows.size(), 10u);
  for (const MetricsRow& row : rows) {
    EXPECT_EQ(row.found_inf, row.step >= 4 && row.step <= 6) << row.step;
    EXPECT_EQ(row.skipped, row.found_inf) << row.step;
    EXPECT_FALSE(row.growth_tracker);
  }
  EXPECT_TRUE(std::isfinite(result.train_loss.value()));
}

TEST(SkippedSteps, have_no_columns_where_they_would_end_the_run) {
  const TemporaryFolder folder;
  Faulty task(0, 0);
  fit(options_in(folder, 2), task);
  const std::vector<MetricsRow> rows = read_metrics(folder.path() / "metrics.csv");
  ASSERT_EQ(rows.size(), 2u);
  for (const MetricsRow& row : rows) {
    EXPECT_FALSE(row.found_inf || row.skipped || row.growth_tracker || row.loss_scale);
  }
}

TEST(SkippedSteps, that_are_too_many_in_a_row_end_the_run_with_one_sentence) {
  for (const Index limit : {3, 4}) {
    const TemporaryFolder folder;
    Faulty task(4, 6);
    TrainerOptions options = options_in(folder, 10);
    options.amp.skip_nonfinite = true;
    options.amp.max_skipped_steps = limit;
    testing::internal::CaptureStderr();
    const std::string said = test::refusal([&] { fit(options, task); }, ErrorCategory::Internal);
    testing::internal::GetCapturedStderr();
    if (limit == 4) {
      EXPECT_EQ(said, "");
    } else {
      EXPECT_THAT(said, HasSubstr("train step 6"));
      EXPECT_THAT(said, HasSubstr("all of the last 3 steps"));
    }
  }
}

TEST(SkippedSteps, let_a_resumed_run_pass_where_it_had_ended) {
  const TemporaryFolder whole, parts;
  TrainerOptions options = options_in(parts, 10);
  options.checkpoint_every = 2;
  Faulty ended(4, 4);
  const std::string said = test::refusal([&] { fit(options, ended); }, ErrorCategory::Internal);
  EXPECT_THAT(said, HasSubstr("train step 4"));
  EXPECT_THAT(said, HasSubstr("trainer.skip_nonfinite"));
  testing::internal::CaptureStderr();
  options.amp.skip_nonfinite = true;
  Faulty resumed(4, 4), uninterrupted(4, 4);
  const TrainResult result = fit(options, resumed, /*resume=*/true);
  options.folder = whole.path();
  fit(options, uninterrupted);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(result.resumed_from, 2);
  EXPECT_EQ(result.skipped_steps, 1);
  EXPECT_TRUE(at::equal(resumed.w.detach(), uninterrupted.w.detach()));
}

// 12 steps at once, and the same stopped after 5 and resumed, with whatever `options` and the task
// add.
void expect_exact_resume(const std::function<void(TrainerOptions&, Chase&)>& set_up) {
  Tensor want, want_seen;
  std::string want_log;
  for (const bool cut : {false, true}) {
    const TemporaryFolder folder;
    if (cut) {
      Chase task;
      task.stop_after = 5;
      optim::AdamW optimizer({task.w}, optim::AdamWOptions(0.1));
      TrainerOptions options = options_in(folder, 12);
      set_up(options, task);
      EXPECT_THROW(fit(options, task, optimizer), Error);
    }
    Chase task;
    optim::AdamW optimizer({task.w}, optim::AdamWOptions(0.1));
    TrainerOptions options = options_in(folder, 12);
    set_up(options, task);
    fit(options, task, optimizer, cut);
    std::string log;
    for (const MetricsRow& row : read_metrics(folder.path() / "metrics.csv")) {
      log += concat(row.step, ' ', row.loss, ' ', row.loss_scale.value_or(-1), '\n');
    }
    if (cut) {
      EXPECT_TRUE(at::equal(task.w.detach(), want));
      EXPECT_TRUE(at::equal(task.seen, want_seen));
      EXPECT_EQ(log, want_log);
    } else {
      want = task.w.detach(), want_seen = task.seen, want_log = log;
    }
  }
}

TEST(TrainerPrecision, resume_continues_scale_and_tracker) {
  expect_exact_resume([](TrainerOptions& options, Chase& task) {
    task.most = 60000;
    options.amp.scaler = amp::GradScalerOptions{.growth_interval = 3};
  });
}

TEST(TrainerPrecision, resume_continues_averages) {
  expect_exact_resume([](TrainerOptions& options, Chase&) { options.ema_decay = 0.9; });
}

TEST(TrainerPrecision, a_checkpoint_with_a_scale_wants_one) {
  const TemporaryFolder folder;
  for (const bool second : {false, true}) {
    Chase task;
    optim::SGD optimizer({task.w}, optim::SGDOptions(0.5));
    TrainerOptions options = options_in(folder, second ? 6 : 3);
    if (!second) options.amp.scaler.emplace();
    optim::ExponentialLR scheduler(optimizer, 1);
    Trainer trainer(options);
    if (second) {
      EXPECT_THROW(trainer.resume(task, optimizer, scheduler), Error);
    } else {
      trainer.fit(task, optimizer, scheduler, task.stop);
    }
  }
}

TEST(MovingAverages, are_what_is_validated_and_swap_back_bit_for_bit) {
  constexpr double kDecay = 0.9;
  constexpr Index kManySteps = 200;
  const TemporaryFolder folder;
  Chase task;
  optim::SGD optimizer({task.w}, optim::SGDOptions(0.5));
  TrainerOptions options = options_in(folder, kManySteps);
  options.ema_decay = kDecay;
  fit(options, task, optimizer);
  // fp64, the average beginning as a copy before the first step.
  double w = 0, average = 0;
  for (Index step = 0; step < kManySteps; ++step) {
    w -= 0.5 * (w - static_cast<double>(step + 1));
    const auto t = static_cast<double>(step);
    const double decay = std::min(kDecay, (1 + t) / (10 + t));
    average = decay * average + (1 - decay) * w;
  }
  EXPECT_NEAR(task.seen[0].item<double>(), average, 1e-5 * average);
  EXPECT_NEAR(task.w[0].item<double>(), w, 1e-5 * w);
  EXPECT_GT(std::abs(w - average), 1);
  const Tensor before = task.w.detach().clone();
  {
    const optim::AveragedWeights averaged(optimizer);
    EXPECT_TRUE(at::equal(task.w.detach(), task.seen));
  }
  EXPECT_TRUE(at::equal(task.w.detach(), before));
}

}  // namespace
}  // namespace hone::trainer
