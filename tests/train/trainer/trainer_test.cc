// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/trainer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <cmath>
#include <limits>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/philox.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/lr/composed_lr.h"
#include "hone/train/optim/lr/decay_lr.h"
#include "hone/train/optim/lr/one_cycle_lr.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"
#include "hone/train/stop_scope.h"
#include "hone/train/trainer/metrics_log.h"
#include "tests/support/error_of.h"
#include "tests/support/scripted_clock.h"
#include "tests/support/stop_flag.h"
#include "tests/support/test_data.h"

namespace hone::trainer {
namespace {

using test::TemporaryFolder;
using testing::HasSubstr;
using torch::Tensor;

constexpr Index kFeatures = 64;
constexpr double kUnit = 0x1p-24;

// Least squares with a weight per row: Σ c_r (x_r·w - y_r)²/2 over rows, weight Σ c_r. `split` says
// how many of the twelve rows of a step each micro-batch takes.
class Regression final : public Task {
 public:
  explicit Regression(std::vector<Index> split, bool weighted = false) : split_(std::move(split)) {
    PhiloxStream random(5);
    x_ = at::empty({12, kFeatures}), y_ = at::empty({12}), c_ = at::ones({12});
    for (Index i = 0; i < x_.numel(); ++i) x_.data_ptr<float>()[i] = random.uniform() - 0.5f;
    for (Index i = 0; i < 12; ++i) {
      y_.data_ptr<float>()[i] = random.uniform();
      if (weighted) c_.data_ptr<float>()[i] = static_cast<float>(1 + i % 5);
    }
    w_ = at::zeros({kFeatures}).requires_grad_(true);
  }

  LossSum micro_batch(Index step, Index micro) override {
    if (on_step) on_step(step);
    Index first = 0;
    for (Index i = 0; i < micro; ++i) first += split_[static_cast<std::size_t>(i)];
    const Index rows = split_[static_cast<std::size_t>(micro)];
    const Tensor error = at::mv(x_.narrow(0, first, rows), w_) - y_.narrow(0, first, rows);
    const Tensor c = c_.narrow(0, first, rows);
    return {(c * error * error / 2).sum().to(at::kDouble) * factor, c.sum().item<double>()};
  }
  double nominal_weight() const override { return static_cast<double>(split_.front()); }
  Validation validate(bool all, const BatchDone& batch_done) override {
    if (on_validate) on_validate(all);
    if (batch_done) batch_done(1, 2);
    return {validations[next_validation_++ % validations.size()], 0};
  }
  std::vector<CheckpointTensor> weights() override { return {{"w", w_}}; }

  std::function<void(Index step)> on_step;
  std::function<void(bool all)> on_validate;
  std::vector<double> validations = {1};
  double factor = 1;
  Tensor w_, x_, y_, c_;

 private:
  std::vector<Index> split_;
  std::size_t next_validation_ = 0;
};

TrainerOptions options_in(const TemporaryFolder& folder, Index steps, Index accumulation) {
  TrainerOptions options;
  options.steps = steps;
  options.accumulation_steps = accumulation;
  options.folder = folder.path();
  return options;
}

const std::stop_token kGoOn;

// One step has the optimizer's rate. More move the rate up to that and down, and the momentum.
optim::SchedulerPtr make_scheduler(const TrainerOptions& options,
                                   torch::optim::Optimizer& optimizer) {
  if (options.steps == 1) return std::make_shared<optim::ExponentialLR>(optimizer, 1);
  const double peak = optimizer.param_groups()[0].options().get_lr();
  return std::make_shared<optim::OneCycleLR>(
      optimizer, optim::OneCycleLROptions{.max_lr = {peak}, .total_steps = options.steps});
}

TrainResult train(const TrainerOptions& options, Task& task, optim::MultiTensorOptimizer& optimizer,
                  const std::stop_token& stop = kGoOn) {
  return Trainer(options).fit(task, optimizer, *make_scheduler(options, optimizer), stop);
}

// One SGD step of rate 1 from zero leaves minus the gradient.
Tensor gradient_of(const std::vector<Index>& split, bool weighted) {
  const TemporaryFolder folder;
  Regression task(split, weighted);
  optim::SGD optimizer({task.w_}, optim::SGDOptions(1.0));
  train(options_in(folder, 1, static_cast<Index>(split.size())), task, optimizer);
  return -task.w_.detach();
}

TEST(Accumulation, gives_the_gradient_of_the_whole_batch_for_even_and_ragged_groups) {
  for (const bool weighted : {false, true}) {
    const Tensor whole = gradient_of({12}, weighted);
    EXPECT_GT(whole.abs().max().item<double>(), 0.01);
    for (const std::vector<Index>& split : std::vector<std::vector<Index>>{{4, 4, 4}, {5, 5, 2}}) {
      const double error = (gradient_of(split, weighted) - whole).abs().max().item<double>();
      EXPECT_LE(error, 16 * kUnit * whole.abs().max().item<double>()) << split[0] << weighted;
    }
  }
}

TEST(Accumulation, reports_the_mean_loss_whatever_the_grouping) {
  for (const std::vector<Index>& split :
       std::vector<std::vector<Index>>{{12}, {4, 4, 4}, {5, 5, 2}}) {
    const TemporaryFolder folder;
    Regression task(split, true);
    optim::SGD optimizer({task.w_}, optim::SGDOptions(1.0));
    train(options_in(folder, 1, static_cast<Index>(split.size())), task, optimizer);
    const double want = ((task.c_ * task.y_ * task.y_ / 2).sum() / task.c_.sum()).item<double>();
    EXPECT_NEAR(read_metrics(folder.path() / "metrics.csv").at(0).loss, want, 1e-6 * want);
  }
}

TEST(Clipping, limits_the_norm_of_the_mean_gradient_and_logs_the_unclipped_one) {
  const TemporaryFolder folder;
  Regression task({5, 5, 2});
  const double norm = gradient_of({12}, false).norm().item<double>();
  optim::SGD optimizer({task.w_}, optim::SGDOptions(1.0));
  TrainerOptions options = options_in(folder, 1, 3);
  options.clip_norm = norm / 4;
  train(options, task, optimizer);
  EXPECT_NEAR(task.w_.norm().item<double>(), norm / 4, 1e-4 * norm);
  EXPECT_NEAR(read_metrics(folder.path() / "metrics.csv").at(0).grad_norm, norm, 1e-5 * norm);
}

TEST(Clipping, limits_other_norms_and_single_values_of_the_mean_gradient) {
  const Tensor gradient = gradient_of({12}, false);
  const double largest = gradient.abs().max().item<double>();
  for (const bool by_value : {true, false}) {
    for (const bool scaled : {false, true}) {
      const TemporaryFolder folder;
      Regression task({5, 5, 2});
      optim::SGD optimizer({task.w_}, optim::SGDOptions(1.0));
      TrainerOptions options = options_in(folder, 1, 3);
      options.norm_type = std::numeric_limits<double>::infinity();
      if (by_value) options.clip_value = largest / 4;
      if (!by_value) options.clip_norm = largest / 4;
      if (scaled) options.amp.scaler = amp::GradScalerOptions{.init_scale = 64};
      train(options, task, optimizer);
      const Tensor wanted = by_value ? gradient.clamp(-largest / 4, largest / 4) : gradient / 4;
      EXPECT_LE((task.w_ + wanted).abs().max().item<double>(), 1e-4 * largest) << by_value;
      EXPECT_NEAR(read_metrics(folder.path() / "metrics.csv").at(0).grad_norm, largest,
                  1e-5 * largest);
    }
  }
}

TEST(Trainer, follows_the_schedule_and_writes_a_row_per_step) {
  const TemporaryFolder folder;
  Regression task({12});
  optim::SGD optimizer({task.w_}, optim::SGDOptions(0.5));
  optim::WarmupLR scheduler(optimizer, {.steps = 3, .start = 0.1});
  TrainerOptions options = options_in(folder, 9, 1);
  options.validate_every = 4;
  task.validations = {3, 2, 1};
  const TrainResult result = Trainer(options).fit(task, optimizer, scheduler, kGoOn);
  const std::vector<MetricsRow> rows = read_metrics(folder.path() / "metrics.csv");
  ASSERT_EQ(rows.size(), 9u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].step, static_cast<Index>(i + 1));
    EXPECT_EQ(rows[i].lr, scheduler.rate_at(static_cast<Index>(i), 0, 0.5));
    EXPECT_EQ(rows[i].val_loss.has_value(), i == 3 || i == 7 || i == 8);
  }
  EXPECT_LT(rows[8].loss, rows[0].loss);
  EXPECT_EQ(result.validation.loss, 1);
  EXPECT_EQ(result.train_loss, rows[8].loss);
}

void expect_failure(const TrainerOptions& options, Task& task,
                    optim::MultiTensorOptimizer& optimizer, const char* text) {
  try {
    train(options, task, optimizer);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::Internal);
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST(Trainer, stops_on_a_gradient_that_is_not_finite_and_leaves_the_weights) {
  const TemporaryFolder folder;
  Regression task({12});
  task.on_step = [&](Index step) {
    if (step == 2) task.factor = std::numeric_limits<double>::infinity();
  };
  optim::SGD optimizer({task.w_}, optim::SGDOptions(0.1));
  expect_failure(options_in(folder, 5, 1), task, optimizer, "step 3");
  EXPECT_TRUE(at::isfinite(task.w_).all().item<bool>());
}

TEST(Trainer, a_model_whose_validation_is_not_finite_is_no_result) {
  const TemporaryFolder folder;
  Regression task({12});
  task.validations = {std::numeric_limits<double>::quiet_NaN()};
  optim::SGD optimizer({task.w_}, optim::SGDOptions(0.1));
  expect_failure(options_in(folder, 5, 1), task, optimizer,
                 "held-out data after step 5 is not finite");
}

using MakeOptimizer = std::shared_ptr<optim::MultiTensorOptimizer> (*)(const Tensor&);
std::shared_ptr<optim::MultiTensorOptimizer> make_adamw(const Tensor& w) {
  return std::make_shared<optim::AdamW>(std::vector<Tensor>{w}, optim::AdamWOptions(0.1));
}
std::shared_ptr<optim::MultiTensorOptimizer> make_tam(const Tensor& w) {
  return std::make_shared<optim::TAM>(std::vector<Tensor>{w}, optim::TAMOptions(0.1));
}
std::shared_ptr<optim::MultiTensorOptimizer> make_adatamw(const Tensor& w) {
  return std::make_shared<optim::AdaTAMW>(std::vector<Tensor>{w}, optim::AdaTAMWOptions(0.01));
}
std::shared_ptr<optim::MultiTensorOptimizer> make_sgd(const Tensor& w) {
  return std::make_shared<optim::SGD>(std::vector<Tensor>{w}, optim::SGDOptions(0.1).momentum(0.9));
}

TrainerOptions resumable(const TemporaryFolder& folder) {
  TrainerOptions options = options_in(folder, 20, 3);
  options.clip_norm = 0.5;
  options.checkpoint_every = 6;
  options.validate_every = 5;
  return options;
}

// Losses and weights of the run, its uninterrupted twin's first.
void expect_same_run(const TemporaryFolder& a, const TemporaryFolder& b, Index steps = 20) {
  const auto rows = read_metrics(a.path() / "metrics.csv"),
             other = read_metrics(b.path() / "metrics.csv");
  ASSERT_EQ(rows.size(), other.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].step, other[i].step);
    EXPECT_EQ(rows[i].loss, other[i].loss) << i;
    EXPECT_EQ(rows[i].grad_norm, other[i].grad_norm) << i;
    EXPECT_EQ(rows[i].val_loss, other[i].val_loss) << i;
  }
  for (const char* file : {"weights.safetensors", "state.safetensors"}) {
    const auto bytes = [&](const TemporaryFolder& folder) {
      return read_text_file(CheckpointStore(folder.path() / "checkpoints").path_of(steps) / file);
    };
    EXPECT_TRUE(bytes(a) == bytes(b)) << file;
  }
}

TEST(Resume, after_an_interrupt_gives_the_bits_of_the_uninterrupted_run) {
  for (const MakeOptimizer make : {make_adamw, make_tam, make_adatamw, make_sgd}) {
    const TemporaryFolder whole, parts;
    {
      Regression task({5, 5, 2});
      const auto optimizer = make(task.w_);
      train(resumable(whole), task, *optimizer);
    }
    hone::test::StopFlag stop{false};
    {
      Regression task({5, 5, 2});
      task.on_step = [&](Index step) { stop = step == 8; };
      const auto optimizer = make(task.w_);
      try {
        train(resumable(parts), task, *optimizer, stop);
        FAIL();
      } catch (const Error& error) {
        EXPECT_EQ(error.category(), ErrorCategory::Cancelled);
        EXPECT_THAT(error.what(), HasSubstr("step 9"));
      }
    }
    Regression task({5, 5, 2});
    const auto optimizer = make(task.w_);
    const auto scheduler = make_scheduler(resumable(parts), *optimizer);
    Trainer trainer(resumable(parts));
    ASSERT_TRUE(trainer.resume(task, *optimizer, *scheduler));
    EXPECT_EQ(trainer.fit(task, *optimizer, *scheduler, kGoOn).resumed_from, 9);
    expect_same_run(whole, parts);
  }
}

// Work of the task that would take for ever.
void wait_for_the_stop() {
  while (true) check_stop();
}

TEST(Resume, after_an_interrupt_of_a_long_step_takes_the_step_again) {
  const TemporaryFolder whole, parts;
  std::vector<double> draws;
  const auto draw = [&](Index) { draws.push_back(at::rand({}).item<double>()); };
  {
    Regression task({5, 5, 2});
    task.on_step = draw;
    const auto optimizer = make_adamw(task.w_);
    train(resumable(whole), task, *optimizer);
  }
  const std::vector<double> expected = std::move(draws);
  draws.clear();
  hone::test::StopFlag stop{false};
  Index micro = 0;
  {
    Regression task({5, 5, 2});
    task.on_step = [&](Index step) {
      draw(step);
      if (step != 8 || ++micro < 2) return;
      stop = true;
      wait_for_the_stop();
    };
    const auto optimizer = make_adamw(task.w_);
    const std::string said = hone::test::refusal(
        [&] { train(resumable(parts), task, *optimizer, stop); }, ErrorCategory::Cancelled);
    EXPECT_THAT(said, HasSubstr("step 8"));
    EXPECT_FALSE(task.w_.grad().defined());
  }
  draws.resize(draws.size() - 2);  // the third micro-batch did not begin
  Regression task({5, 5, 2});
  task.on_step = draw;
  const auto optimizer = make_adamw(task.w_);
  const auto scheduler = make_scheduler(resumable(parts), *optimizer);
  Trainer trainer(resumable(parts));
  ASSERT_TRUE(trainer.resume(task, *optimizer, *scheduler));
  EXPECT_EQ(trainer.fit(task, *optimizer, *scheduler, kGoOn).resumed_from, 8);
  expect_same_run(whole, parts);
  EXPECT_EQ(draws, expected);
}

TEST(Trainer, interrupted_in_its_first_step_saves_nothing_and_says_so) {
  const TemporaryFolder folder;
  hone::test::StopFlag stop{true};
  Regression task({5, 5, 2});
  task.on_step = [](Index) { wait_for_the_stop(); };
  const auto optimizer = make_adamw(task.w_);
  EXPECT_THAT(hone::test::refusal([&] { train(resumable(folder), task, *optimizer, stop); },
                                  ErrorCategory::Cancelled),
              HasSubstr("nothing to save"));
  EXPECT_TRUE(CheckpointStore(folder.path() / "checkpoints").steps().empty());
}

TEST(Resume, after_an_interrupt_of_a_validation_between_steps_validates_again) {
  const TemporaryFolder whole, parts;
  const auto validations = std::vector<double>{3, 2, 1};
  {
    Regression task({5, 5, 2});
    task.validations = validations;
    const auto optimizer = make_adamw(task.w_);
    train(resumable(whole), task, *optimizer);
  }
  hone::test::StopFlag stop{false};
  {
    Regression task({5, 5, 2});
    task.on_validate = [&](bool) {
      stop = true;
      wait_for_the_stop();
    };
    const auto optimizer = make_adamw(task.w_);
    const std::string said = hone::test::refusal(
        [&] { train(resumable(parts), task, *optimizer, stop); }, ErrorCategory::Cancelled);
    EXPECT_THAT(said, HasSubstr("step 5"));
  }
  EXPECT_FALSE(read_metrics(parts.path() / "metrics.csv").back().val_loss);
  Regression task({5, 5, 2});
  task.validations = validations;
  const auto optimizer = make_adamw(task.w_);
  const auto scheduler = make_scheduler(resumable(parts), *optimizer);
  Trainer trainer(resumable(parts));
  ASSERT_TRUE(trainer.resume(task, *optimizer, *scheduler));
  trainer.fit(task, *optimizer, *scheduler, kGoOn);
  expect_same_run(whole, parts);
}

TEST(Resume, after_an_interrupt_of_the_last_validation_only_validates) {
  const TemporaryFolder whole, parts;
  {
    Regression task({5, 5, 2});
    const auto optimizer = make_adamw(task.w_);
    train(resumable(whole), task, *optimizer);
  }
  hone::test::StopFlag stop{false};
  {
    Regression task({5, 5, 2});
    task.on_validate = [&](bool all) { stop = all; };
    const auto optimizer = make_adamw(task.w_);
    const std::string said = hone::test::refusal(
        [&] { train(resumable(parts), task, *optimizer, stop); }, ErrorCategory::Cancelled);
    EXPECT_THAT(said, HasSubstr("step 20 is saved"));
  }
  EXPECT_FALSE(read_metrics(parts.path() / "metrics.csv").back().val_loss);
  Regression task({5, 5, 2});
  task.on_step = [](Index step) { ADD_FAILURE() << step; };
  const auto optimizer = make_adamw(task.w_);
  const auto scheduler = make_scheduler(resumable(parts), *optimizer);
  Trainer trainer(resumable(parts));
  ASSERT_TRUE(trainer.resume(task, *optimizer, *scheduler));
  const TrainResult result = trainer.fit(task, *optimizer, *scheduler, kGoOn);
  EXPECT_EQ(result.resumed_from, 20);
  EXPECT_FALSE(result.tokens_per_s);
  expect_same_run(whole, parts);
}

TEST(Resume, of_a_run_that_ended_continues_it_to_the_bits_of_a_longer_one) {
  for (const MakeOptimizer make : {make_adamw, make_tam, make_adatamw, make_sgd}) {
    const TemporaryFolder whole, parts;
    const auto run = [&](const TemporaryFolder& folder, Index steps, bool resume) {
      Regression task({5, 5, 2});
      const auto optimizer = make(task.w_);
      optim::WarmupLR constant(*optimizer, {.steps = 7, .start = 0.1});
      TrainerOptions options = resumable(folder);
      options.steps = steps;
      options.ema_decay = 0.9;
      Trainer trainer(options);
      EXPECT_EQ(trainer.resume(task, *optimizer, constant), resume);
      return trainer.fit(task, *optimizer, constant, kGoOn);
    };
    run(whole, 200, false);
    run(parts, 100, false);
    EXPECT_EQ(run(parts, 200, true).resumed_from, 100);
    expect_same_run(whole, parts, 200);
  }
}

TEST(Resume, of_a_run_with_more_steps_than_it_shall_have_is_refused) {
  const TemporaryFolder folder;
  Regression task({5, 5, 2});
  const auto optimizer = make_adamw(task.w_);
  train(resumable(folder), task, *optimizer);
  TrainerOptions shorter = resumable(folder);
  shorter.steps = 19;
  const auto scheduler = make_scheduler(shorter, *optimizer);
  const std::string said =
      hone::test::refusal([&] { Trainer(shorter).resume(task, *optimizer, *scheduler); });
  EXPECT_THAT(said, HasSubstr("[trainer.steps]"));
  EXPECT_THAT(said, HasSubstr("20 steps that are done"));
}

TEST(Resume, needs_the_checkpoints_only) {
  using Damage = std::function<void(const std::filesystem::path& csv)>;
  const std::vector<Damage> damages = {
      [](const auto& csv) { std::filesystem::remove(csv); },
      [](const auto& csv) { write_text_file(csv, ""); },
      [](const auto& csv) { std::filesystem::resize_file(csv, 300); }};
  for (const Damage& damage : damages) {
    const TemporaryFolder folder;
    {
      Regression task({5, 5, 2});
      const auto optimizer = make_adamw(task.w_);
      train(resumable(folder), task, *optimizer);
    }
    damage(folder.path() / "metrics.csv");
    for (int time = 0; time < 2; ++time) {  // the second meets what the first has written
      Regression task({5, 5, 2});
      const auto optimizer = make_adamw(task.w_);
      const auto scheduler = make_scheduler(resumable(folder), *optimizer);
      Trainer trainer(resumable(folder));
      ASSERT_TRUE(trainer.resume(task, *optimizer, *scheduler));
      testing::internal::CaptureStderr();
      EXPECT_FALSE(trainer.fit(task, *optimizer, *scheduler, kGoOn).train_loss);
      EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("to 20"));
    }
  }
}

TEST(Trainer, ends_well_where_its_log_is_removed_during_the_run) {
  const TemporaryFolder folder;
  Regression task({12});
  optim::SGD optimizer({task.w_}, optim::SGDOptions(0.5));
  task.on_step = [&](Index step) {
    if (step == 2) std::filesystem::remove(folder.path() / "metrics.csv");
  };
  testing::internal::CaptureStderr();
  const TrainResult result = train(options_in(folder, 4, 1), task, optimizer);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("removed during the run"));
  EXPECT_TRUE(result.train_loss && std::isfinite(*result.train_loss));
  EXPECT_THAT(CheckpointStore(folder.path() / "checkpoints").steps(), testing::ElementsAre(4));
}

TEST(Trainer, metrics_have_the_seconds_of_each_phase_and_the_memory) {
  const TemporaryFolder folder;
  Regression task({4, 4, 4});
  optim::SGD optimizer({task.w_}, optim::SGDOptions(0.5));
  test::ScriptedClock clock;
  task.on_step = [&](Index step) { clock.advance(static_cast<double>(step + 1)); };
  TrainerOptions options = options_in(folder, 3, 3);
  const auto scheduler = make_scheduler(options, optimizer);
  Trainer(options, clock).fit(task, optimizer, *scheduler, kGoOn);
  const std::vector<MetricsRow> rows = read_metrics(folder.path() / "metrics.csv");
  ASSERT_EQ(rows.size(), 3u);
  for (const MetricsRow& row : rows) {
    EXPECT_DOUBLE_EQ(row.forward_s.value(), 3.0 * static_cast<double>(row.step));
    EXPECT_EQ(row.backward_s, 0);
    EXPECT_EQ(row.optimizer_s, 0);
    EXPECT_GT(row.memory_mb.value(), 10);
  }
}

TEST(Trainer, ends_with_the_weights_of_least_held_out_loss_if_asked) {
  // Losses come from steps 2 and 4, on a part of the data, then from the last and the best, on all.
  for (const auto& [validations, step] : std::vector<std::pair<std::vector<double>, Index>>{
           {{3, 1, 2, 1.5}, 4}, {{1, 3, 2, 1.5}, 2}, {{3, 1, 2, 2.5}, 6}, {{2, 1, 0.5, 3}, 6}}) {
    const TemporaryFolder folder;
    Regression task({12});
    task.validations = validations;
    const auto optimizer = make_adamw(task.w_);
    TrainerOptions options = options_in(folder, 6, 1);
    options.validate_every = 2;
    options.exports_best = true;
    const TrainResult result = train(options, task, *optimizer);
    EXPECT_EQ(result.model_step, step);
    EXPECT_EQ(result.validation.loss, step == 6 ? validations[2] : validations[3]);
    const CheckpointStore store(folder.path() / "checkpoints");
    const Checkpoint expected = store.load(step);
    EXPECT_TRUE(at::equal(task.w_.detach(), expected.weights[0].value)) << step;
  }
}

TEST(Resume, skips_a_damaged_checkpoint_by_name) {
  const TemporaryFolder whole, parts;
  for (const TemporaryFolder* folder : {&whole, &parts}) {
    Regression task({5, 5, 2});
    const auto optimizer = make_adamw(task.w_);
    train(resumable(*folder), task, *optimizer);
  }
  const CheckpointStore store(parts.path() / "checkpoints");
  const std::vector<Index> steps = store.steps();
  ASSERT_THAT(steps, testing::ElementsAre(5, 18, 20)) << "the newest two, and the best at 5";
  for (const char* file : {"weights.safetensors", "state.safetensors", "manifest.json"}) {
    const auto path = store.path_of(20) / file;
    std::string bytes = read_text_file(path);
    const std::string good = bytes;
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_text_file(path, bytes);
    testing::internal::CaptureStderr();
    const auto found = store.load_newest();
    const std::string warning = testing::internal::GetCapturedStderr();
    ASSERT_TRUE(found) << file;
    EXPECT_EQ(found->step, 18) << file;
    EXPECT_THAT(warning, HasSubstr("step_00000020"));
    write_text_file(path, good);
  }
  std::filesystem::remove(store.path_of(20) / "state.safetensors");
  Regression task({5, 5, 2});
  const auto optimizer = make_adamw(task.w_);
  const auto scheduler = make_scheduler(resumable(parts), *optimizer);
  Trainer trainer(resumable(parts));
  ASSERT_TRUE(trainer.resume(task, *optimizer, *scheduler));
  EXPECT_EQ(trainer.fit(task, *optimizer, *scheduler, kGoOn).resumed_from, 18);
  expect_same_run(whole, parts);
}

TEST(Resume, refuses_where_every_checkpoint_is_damaged) {
  const TemporaryFolder folder;
  {
    Regression task({5, 5, 2});
    const auto optimizer = make_adamw(task.w_);
    train(resumable(folder), task, *optimizer);
  }
  const CheckpointStore store(folder.path() / "checkpoints");
  for (const Index step : store.steps())
    write_text_file(store.path_of(step) / "manifest.json", "{");
  testing::internal::CaptureStderr();
  const std::string refused =
      hone::test::refusal([&] { store.load_newest(); }, ErrorCategory::CorruptFile);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("step_00000005"));
  EXPECT_THAT(refused, HasSubstr("All checkpoints are damaged (3)"));
}

TEST(Resume, without_a_checkpoint_says_so_and_changes_nothing) {
  const TemporaryFolder folder;
  Regression task({12});
  const auto optimizer = make_adamw(task.w_);
  const auto scheduler = make_scheduler(resumable(folder), *optimizer);
  EXPECT_FALSE(Trainer(resumable(folder)).resume(task, *optimizer, *scheduler));
  EXPECT_TRUE(task.w_.eq(0).all().item<bool>());
}

TEST(Resume, refuses_other_facts_and_other_shapes) {
  const TemporaryFolder folder;
  {
    Regression task({5, 5, 2});
    const auto optimizer = make_adamw(task.w_);
    TrainerOptions options = resumable(folder);
    options.facts = {{"lr", 3}};
    train(options, task, *optimizer);
  }
  Regression task({5, 5, 2});
  const auto optimizer = make_adamw(task.w_);
  TrainerOptions options = resumable(folder);
  options.check_facts = [](const Json& recorded, Index done) {
    EXPECT_EQ(recorded.at("lr"), 3);
    EXPECT_EQ(done, 20);
    throw Error(ErrorCategory::InvalidArgument, "lr changed");
  };
  const auto scheduler = make_scheduler(options, *optimizer);
  const auto refusal = [&](optim::MultiTensorOptimizer& stepped, optim::Scheduler& schedule) {
    try {
      Trainer(options).resume(task, stepped, schedule);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(*optimizer, *scheduler), "lr changed");
  options.check_facts = nullptr;
  optim::ExponentialLR other(*optimizer, 1);
  EXPECT_THAT(refusal(*optimizer, other), HasSubstr("OneCycleLR"));
  EXPECT_THROW(Trainer(options).fit(task, *make_adamw(task.w_), other, kGoOn), Error)
      << "a scheduler of another optimizer";
  task.w_ = at::zeros({kFeatures + 1}).requires_grad_(true);
  const auto larger = make_adamw(task.w_);
  EXPECT_THAT(refusal(*larger, *make_scheduler(options, *larger)), HasSubstr("elements"));
}

TEST(Checkpoints, keep_the_newest_and_the_best) {
  const TemporaryFolder folder;
  Regression task({5, 5, 2});
  task.validations = {3, 1, 2, 2};  // steps 5, 10, 15; the end
  const auto optimizer = make_adamw(task.w_);
  TrainerOptions options = resumable(folder);
  options.checkpoint_every = 2;
  options.keep_checkpoints = 3;
  train(options, task, *optimizer);
  EXPECT_THAT(CheckpointStore(folder.path() / "checkpoints").steps(),
              testing::ElementsAre(10, 16, 18, 20));
}

TEST(Checkpoints, of_an_older_run_are_gone_when_a_new_one_starts) {
  const TemporaryFolder folder;
  for (const Index steps : {20, 6}) {
    Regression task({5, 5, 2});
    const auto optimizer = make_adamw(task.w_);
    TrainerOptions options = resumable(folder);
    options.steps = steps;
    train(options, task, *optimizer);
  }
  EXPECT_THAT(CheckpointStore(folder.path() / "checkpoints").steps(), testing::ElementsAre(5, 6));
}

TEST(MeasureStep, leaves_weights_and_gradients_as_they_were) {
  Regression task({5, 5, 2});
  EXPECT_GT(measure_step_seconds(task, 3, 2), 0);
  EXPECT_TRUE(task.w_.eq(0).all().item<bool>());
  EXPECT_FALSE(task.w_.grad().defined());
}

TEST(CheckDisk, refuses_a_checkpoint_that_does_not_fit_and_warns_of_those_to_come) {
  const auto refused = [](Index free, Index stored) {
    return hone::test::refusal([&] { check_disk("runs/a", free, 1000, 2, stored); },
                               ErrorCategory::Resource);
  };
  EXPECT_THAT(refused(999, 0), testing::HasSubstr("runs/a"));
  const auto warned = [&](Index free, Index stored) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(refused(free, stored), "");
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(warned(2999, 0), testing::HasSubstr("trainer.keep_checkpoints"));
  EXPECT_EQ(warned(3000, 0), "");
  EXPECT_EQ(warned(1000, 2), "");
}

}  // namespace
}  // namespace hone::trainer
