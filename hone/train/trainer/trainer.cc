// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/trainer.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <unordered_map>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/progress.h"
#include "hone/core/trace.h"
#include "hone/train/optim/averaged_weights.h"
#include "hone/train/trainer/metrics_log.h"

namespace hone::trainer {
namespace {

constexpr std::string_view kStatePrefix = "optimizer.";
constexpr const char* kRandomState = "random.cpu";

at::Generator cpu_generator() { return at::detail::getDefaultCPUGenerator(); }

void drop_gradients(torch::optim::Optimizer& optimizer) {
  for (auto& group : optimizer.param_groups()) {
    for (auto& parameter : group.params()) parameter.mutable_grad() = torch::Tensor();
  }
}

std::vector<CheckpointTensor> collect_state(const optim::MultiTensorOptimizer& optimizer) {
  std::vector<CheckpointTensor> out = {{kRandomState, cpu_generator().get_state()}};
  for (const optim::NamedState& entry : optimizer.export_state()) {
    out.push_back({concat(kStatePrefix, entry.parameter, ".", entry.name), entry.value});
  }
  return out;
}

void restore_state(const std::vector<CheckpointTensor>& stored,
                   optim::MultiTensorOptimizer& optimizer) {
  std::vector<optim::NamedState> state;
  for (const CheckpointTensor& tensor : stored) {
    if (tensor.name == kRandomState) {
      cpu_generator().set_state(tensor.value);
      continue;
    }
    const std::size_t begin = kStatePrefix.size(), dot = tensor.name.find('.', begin);
    if (!tensor.name.starts_with(kStatePrefix) || dot == std::string::npos) {
      fail_corrupt("checkpoint", "optimizer.<parameter>.<name>", tensor.name);
    }
    state.push_back({std::stoll(tensor.name.substr(begin, dot - begin)),
                     tensor.name.substr(dot + 1), tensor.value});
  }
  optimizer.import_state(state);
}

void restore_weights(const std::vector<CheckpointTensor>& stored,
                     std::vector<CheckpointTensor> weights) {
  std::unordered_map<std::string, torch::Tensor> by_name;
  for (const CheckpointTensor& tensor : stored) by_name.emplace(tensor.name, tensor.value);
  for (const CheckpointTensor& weight : weights) {
    const auto found = by_name.find(weight.name);
    HONE_CHECK(found != by_name.end() && found->second.sizes() == weight.value.sizes(), "resume",
               concat("a checkpoint with ", weight.name, " of ", weight.value.numel(), " elements"),
               found == by_name.end() ? std::string("none") : concat(found->second.numel()));
  }
  for (const CheckpointTensor& weight : weights) {
    weight.value.detach().copy_(by_name.at(weight.name));
  }
}

double mean_of_last_tenth(const std::filesystem::path& metrics) {
  const std::vector<MetricsRow> rows = read_metrics(metrics);
  if (rows.empty()) return std::nan("");
  const std::size_t tail = std::max<std::size_t>(1, rows.size() / 10);
  double sum = 0;
  for (std::size_t i = rows.size() - tail; i < rows.size(); ++i) sum += rows[i].loss;
  return sum / static_cast<double>(tail);
}

std::string progress_note(double loss, double lr) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "loss %.3f, lr %.2g", loss, lr);
  return text.data();
}

}  // namespace

std::vector<torch::Tensor> Task::largest_sample() {
  fail_unsupported("task", "one that names its largest sample", "another");
}

LossSum Task::loss_of(const std::vector<torch::Tensor>&) {
  fail_unsupported("task", "one that takes any batch", "another");
}

Trainer::Trainer(TrainerOptions options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      store_(options_.folder / "checkpoints"),
      precision_(options_.amp) {
  HONE_CHECK(options_.steps > 0, "trainer", "at least one step", options_.steps);
  HONE_CHECK(options_.accumulation_steps > 0, "trainer", "at least one micro-batch per step",
             options_.accumulation_steps);
  HONE_CHECK(options_.ema_decay >= 0 && options_.ema_decay < 1, "trainer",
             "an ema_decay of at least 0 and below 1", options_.ema_decay);
  cpu_generator().set_current_seed(options_.seed);
}

bool Trainer::resume(Task& task, optim::MultiTensorOptimizer& optimizer,
                     optim::Scheduler& scheduler) {
  const std::optional<Checkpoint> checkpoint = store_.load_newest();
  if (!checkpoint) return false;
  const Json& facts = checkpoint->facts;
  if (options_.check_facts) options_.check_facts(facts.at("run"));
  restore_weights(checkpoint->weights, task.weights());
  restore_state(checkpoint->state, optimizer);
  if (facts.contains("memory_actions")) {
    memory_actions_ = MemoryActions::from_json(facts.at("memory_actions"));
    options_.accumulation_steps = memory_actions_.apply(task, options_.accumulation_steps);
  }
  scheduler.load_state_dict(facts.value("scheduler", Json()).get<optim::SchedulerState>());
  precision_.load_state_dict(facts.value("loss_scale", Json()));
  done_ = checkpoint->step;
  taken_ = facts.at("steps_taken").get<Index>();
  resumed_from_ = done_;
  if (!facts.at("best_step").is_null()) {
    best_step_ = facts.at("best_step").get<Index>();
    best_loss_ = facts.at("best_loss").get<double>();
  }
  return true;
}

// Forward and backward over the micro-batches of a step. Losses are read after all of them, so that
// a device is not waited for in between.
Trainer::GroupSum Trainer::accumulate(Task& task, Index step) {
  using memory::Phase;
  using memory::PhaseScope;
  const double nominal = task.nominal_weight();
  GroupSum group;
  std::vector<torch::Tensor> sums;
  for (Index micro = 0; micro < options_.accumulation_steps; ++micro) {
    LossSum loss;
    {
      const PhaseScope forward(Phase::Forward);
      const amp::AutocastGuard autocast = precision_.autocast();
      loss = task.micro_batch(step, micro);
    }
    const PhaseScope backward(Phase::Backward);
    precision_.scale(loss.sum / nominal).backward();
    sums.push_back(loss.sum.detach());
    group.weight += loss.weight;
  }
  for (const torch::Tensor& sum : sums) group.loss += sum.item<double>();
  return group;
}

Trainer::StepOutcome Trainer::run_step(Task& task, optim::MultiTensorOptimizer& optimizer,
                                       Index step, MemoryLadder& memory) {
  HONE_TRACE_ZONE("train_step");
  GroupSum group;
  drop_gradients(optimizer);
  const std::int64_t begin = clock_.now_ns();
  memory.run(step, [&] { group = accumulate(task, step); });
  const auto [sum, weight] = group;
  HONE_CHECK(weight > 0, "trainer", "a batch in which something counts", weight);
  // An infinite limit measures the norm and clips nothing.
  const double limit =
      options_.clip_norm > 0 ? options_.clip_norm : std::numeric_limits<double>::infinity();
  const std::optional<double> loss_scale = precision_.loss_scale();
  optim::StepReport report;
  memory.run_optimizer([&] {
    const memory::PhaseScope phase(memory::Phase::Step);
    report = precision_.step(optimizer,
                             {.inv_scale = task.nominal_weight() / weight,
                              .clip_norm = limit,
                              .ema_decay = optim::warmed_ema_decay(options_.ema_decay, taken_)},
                             step, sum / weight);
  });
  if (report.stepped) ++taken_;
  return {.loss = sum / weight,
          .grad_norm = report.grad_norm,
          .weight = weight,
          .loss_scale = loss_scale,
          .work_seconds = seconds_between(begin, clock_.now_ns())};
}

std::optional<Validation> Trainer::validate_when_due(Task& task,
                                                     optim::MultiTensorOptimizer& optimizer,
                                                     MemoryLadder& memory) {
  const bool last = done_ == options_.steps;
  const bool due = options_.validate_every > 0 && done_ % options_.validate_every == 0;
  if (!last && !due) return std::nullopt;
  return validate(task, optimizer, memory, last);
}

Validation Trainer::validate(Task& task, optim::MultiTensorOptimizer& optimizer,
                             MemoryLadder& memory, bool all) {
  const torch::NoGradGuard no_grad;
  const optim::AveragedWeights averaged(optimizer);
  Validation validation;
  memory.run_validation([&] { validation = task.validate(all); });
  return validation;
}

void Trainer::save_when_due(Task& task, const optim::MultiTensorOptimizer& optimizer,
                            const optim::Scheduler& scheduler, bool now) {
  const bool due = options_.checkpoint_every > 0 && done_ % options_.checkpoint_every == 0;
  if (!due && !now && done_ != options_.steps) return;
  HONE_TRACE_ZONE("save_checkpoint");
  Json facts = {{"run", options_.facts}};
  facts["memory_actions"] = memory_actions_.to_json();
  facts["best_step"] = best_step_ ? Json(*best_step_) : Json();
  facts["best_loss"] = best_step_ ? Json(best_loss_) : Json();
  facts["scheduler"] = scheduler.state_dict();
  facts["loss_scale"] = precision_.state_dict();
  facts["steps_taken"] = taken_;
  store_.save({.step = done_,
               .facts = std::move(facts),
               .weights = task.weights(),
               .state = collect_state(optimizer)},
              options_.keep_checkpoints, best_step_);
}

TrainResult Trainer::fit(Task& task, optim::MultiTensorOptimizer& optimizer,
                         optim::Scheduler& scheduler, const std::atomic<bool>& stop) {
  HONE_CHECK(&scheduler.optimizer() == &optimizer && scheduler.last_step() == done_, "trainer",
             concat("a scheduler of the optimiser, at step ", done_),
             concat("one at step ", scheduler.last_step()));
  if (!resumed_from_) store_.clear();
  const std::filesystem::path csv = options_.folder / "metrics.csv";
  MetricsLog log(csv, resumed_from_);
  MemoryLadder memory(options_.max_memory_bytes, task, optimizer, memory_actions_,
                      options_.accumulation_steps);
  MetricsSinks sinks(options_.folder, options_.metrics, read_metrics(csv));
  const Index steps = options_.steps, first = done_;
  Progress progress("train", steps, "steps");
  TrainResult result;
  result.steps = steps;
  result.resumed_from = resumed_from_;
  double tokens = 0, seconds = 0, work_seconds = 0, loop_seconds = 0;
  while (done_ < steps) {
    const std::int64_t begin = clock_.now_ns();
    const StepOutcome outcome = run_step(task, optimizer, done_, memory);
    const double elapsed = seconds_between(begin, clock_.now_ns());
    const double lr = scheduler.last_rates().front();
    scheduler.step();
    ++done_;
    tokens += outcome.weight;
    seconds += elapsed;
    work_seconds += outcome.work_seconds;
    const std::optional<Validation> validation = validate_when_due(task, optimizer, memory);
    const std::int64_t validated = clock_.now_ns();
    const bool best = validation && done_ < steps && (!best_step_ || validation->loss < best_loss_);
    if (best) {
      best_step_ = done_;
      best_loss_ = validation->loss;
    }
    MetricsRow row{.step = done_,
                   .loss = outcome.loss,
                   .lr = lr,
                   .grad_norm = outcome.grad_norm,
                   .tokens_per_s = elapsed > 0 ? outcome.weight / elapsed : 0,
                   .loss_scale = outcome.loss_scale};
    if (validation) {
      row.val_loss = validation->loss;
      if (!validation->accuracy) row.val_bits_per_byte = validation->bits_per_byte;
      row.val_accuracy = validation->accuracy;
      result.validation = *validation;
    }
    log.add(row);
    sinks.add(row);
    progress.update(done_, progress_note(outcome.loss, lr));
    loop_seconds += elapsed + seconds_between(validated, clock_.now_ns());
    save_when_due(task, optimizer, scheduler, best || stop.load());
    if (stop.load() && done_ < steps) {
      fail(ErrorCategory::Cancelled, "train", concat("to reach step ", steps),
           concat("an interrupt after step ", done_, ", which is saved (--resume goes on)"));
    }
  }
  if (first == steps) {  // resumed at the very end: nothing was left but to measure
    result.validation = validate(task, optimizer, memory, /*all=*/true);
  }
  result.train_loss = mean_of_last_tenth(csv);
  result.tokens_per_s = seconds > 0 ? tokens / seconds : 0;
  result.loop_share = loop_seconds > 0 ? 1 - work_seconds / loop_seconds : 0;
  return result;
}

double measure_step_seconds(Task& task, Index accumulation_steps, Index repeats,
                            const Clock& clock) {
  std::vector<double> seconds;
  for (Index repeat = 0; repeat <= repeats; ++repeat) {
    const std::int64_t begin = clock.now_ns();
    for (Index micro = 0; micro < accumulation_steps; ++micro) {
      const LossSum loss = task.micro_batch(repeat, micro);
      (loss.sum / task.nominal_weight()).backward();
    }
    if (repeat > 0) seconds.push_back(seconds_between(begin, clock.now_ns()));
    for (const CheckpointTensor& weight : task.weights()) {
      weight.value.mutable_grad() = torch::Tensor();
    }
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<Index>(seconds.size() / 2),
                   seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace hone::trainer
