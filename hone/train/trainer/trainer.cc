// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/trainer.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <span>
#include <stop_token>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/machine/process_memory.h"
#include "hone/core/machine/trace.h"
#include "hone/core/progress.h"
#include "hone/core/text_format.h"
#include "hone/train/amp/gradient_statistics.h"
#include "hone/train/compress/prune.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/optim/averaged_weights.h"
#include "hone/train/optim/state_tensors.h"
#include "hone/train/random_state.h"
#include "hone/train/stop_scope.h"
#include "hone/train/trainer/metrics_log.h"

namespace hone::trainer {
namespace {

constexpr std::string_view kStatePrefix = "optimizer.";
constexpr std::string_view kRandomPrefix = "random.";
constexpr std::string_view kBufferPrefix = "buffer_average.";
constexpr Index kObservedSteps = 64;  // at most, whose gradients are measured in fp16
// In a checkpoint's facts: its step was due for a validation that was interrupted.
constexpr const char* kLacksValidation = "lacks_validation";

// The generators that a task on `device` may draw from, by their names in a checkpoint.
std::vector<std::pair<std::string, at::Generator>> generators_of(c10::Device device) {
  std::vector<std::pair<std::string, at::Generator>> out = {
      {concat(kRandomPrefix, "cpu"), at::detail::getDefaultCPUGenerator()}};
  if (device.is_cuda()) {
    out.emplace_back(concat(kRandomPrefix, "cuda"), at::globalContext().defaultGenerator(device));
  }
  return out;
}

void drop_gradients(torch::optim::Optimizer& optimizer) {
  for (auto& group : optimizer.param_groups()) {
    for (auto& parameter : group.params()) parameter.mutable_grad() = torch::Tensor();
  }
}

std::vector<CheckpointTensor> collect_state(const optim::MultiTensorOptimizer& optimizer,
                                            std::span<const optim::AveragedBuffer> buffers,
                                            c10::Device device) {
  std::vector<CheckpointTensor> out;
  for (const auto& [name, buffer, average] : buffers) {
    out.push_back({concat(kBufferPrefix, name), average});
  }
  for (const auto& [name, generator] : generators_of(device)) {
    out.push_back({name, generator.get_state()});
  }
  for (const optim::NamedState& entry : optimizer.export_state()) {
    out.push_back({concat(kStatePrefix, entry.parameter, ".", entry.name), entry.value});
  }
  return out;
}

Index parameter_of(std::string_view digits, const std::string& name) {
  Index parameter = -1;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), parameter);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    fail_corrupt("checkpoint", "optimizer.<parameter>.<name>", name);
  }
  return parameter;
}

// The state of a generator that this device does not have is left out, and one that the checkpoint
// lacks stays as it is. Returns the averages of buffers by name.
std::map<std::string, torch::Tensor> restore_state(const std::vector<CheckpointTensor>& stored,
                                                   optim::MultiTensorOptimizer& optimizer,
                                                   c10::Device device) {
  std::vector<optim::NamedState> state;
  std::map<std::string, torch::Tensor> averages;
  std::vector<std::pair<at::Generator, torch::Tensor>> random;
  for (const CheckpointTensor& tensor : stored) {
    const std::string_view name = tensor.name;
    if (name.starts_with(kRandomPrefix)) {
      for (auto& [known, generator] : generators_of(device)) {
        if (known == name) random.emplace_back(generator, tensor.value);
      }
    } else if (name.starts_with(kBufferPrefix)) {
      averages.emplace(name.substr(kBufferPrefix.size()), tensor.value);
    } else {
      const std::size_t begin = kStatePrefix.size(), dot = name.find('.', begin);
      if (!name.starts_with(kStatePrefix) || dot == std::string_view::npos) {
        fail_corrupt("checkpoint", "optimizer.<parameter>.<name>", tensor.name);
      }
      state.push_back({parameter_of(name.substr(begin, dot - begin), tensor.name),
                       tensor.name.substr(dot + 1), tensor.value});
    }
  }
  optimizer.import_state(state);
  for (auto& [generator, value] : random) generator.set_state(value);
  return averages;
}

std::vector<optim::AveragedBuffer> buffers_of(Task& task) {
  std::vector<optim::AveragedBuffer> out;
  for (const CheckpointTensor& weight : task.weights()) {
    if (weight.value.requires_grad() || !weight.value.is_floating_point()) continue;
    out.push_back({weight.name, weight.value, weight.value.detach().clone()});
  }
  return out;
}

using TensorPairs = std::vector<std::pair<torch::Tensor, torch::Tensor>>;

// Weights and what the checkpoint has for them.
TensorPairs match_weights(const std::vector<CheckpointTensor>& stored,
                          const std::vector<CheckpointTensor>& weights) {
  std::unordered_map<std::string, torch::Tensor> by_name;
  for (const CheckpointTensor& tensor : stored) by_name.emplace(tensor.name, tensor.value);
  TensorPairs out;
  for (const CheckpointTensor& weight : weights) {
    const auto found = by_name.find(weight.name);
    HONE_REQUIRE(found != by_name.end(), "resume",
                 concat("The checkpoint has no tensor ", weight.name,
                        ", so it is that of an earlier version of hone or of another model; ",
                        "--fresh starts again, and --init can start from the model of a finished "
                        "run."));
    HONE_CHECK(found->second.sizes() == weight.value.sizes(), "resume",
               concat(weight.name, " of ", weight.value.numel(), " elements"),
               found->second.numel());
    out.emplace_back(weight.value.detach(), found->second);
  }
  return out;
}

// The mean over the last tenth of the steps, without skipped ones, whose loss is not finite.
class TailLoss {
 public:
  explicit TailLoss(Index steps) : first_(steps - std::max<Index>(1, steps / 10) + 1) {}

  void add(const MetricsRow& row) {
    if (row.step < first_ || !std::isfinite(row.loss)) return;
    sum_ += row.loss;
    ++rows_;
  }
  std::optional<double> mean() const {
    return rows_ > 0 ? std::optional(sum_ / rows_) : std::nullopt;
  }

 private:
  Index first_;
  double sum_ = 0, rows_ = 0;
};

void set_validation(MetricsRow& row, const Validation& validation) {
  row.val_loss = validation.loss;
  if (!validation.accuracy) row.val_bits_per_byte = validation.bits_per_byte;
  row.val_accuracy = validation.accuracy;
}

std::string describe_precision(const amp::AmpOptions& amp) {
  if (amp.precision == at::kFloat) return "fp32";
  return amp::probe_autocast(amp.device, amp.precision).describe();
}

void record_scale(const MetricsRow& row, amp::AmpStats& stats) {
  if (row.loss_scale)
    stats.record({row.step - 1, *row.loss_scale, row.found_inf > 0, !(row.skipped > 0)});
}

std::string progress_note(double loss, double lr) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "loss %.3f, lr %.2g", loss, lr);
  return text.data();
}

}  // namespace

std::vector<torch::Tensor> Task::largest_sample() {
  fail_unsupported("task", "This task does not name its largest sample.");
}

LossSum Task::loss_of(const std::vector<torch::Tensor>&) {
  fail_unsupported("task", "This task has no loss of a given batch.");
}

Trainer::Trainer(TrainerOptions options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      store_(options_.folder / "checkpoints"),
      precision_(options_.amp),
      stats_(describe_precision(options_.amp), options_.device, clock) {
  HONE_CHECK(options_.steps > 0, "trainer", "at least one step", options_.steps);
  HONE_CHECK(options_.accumulation_steps > 0, "trainer", "at least one micro-batch per step",
             options_.accumulation_steps);
  HONE_CHECK(options_.ema_decay >= 0 && options_.ema_decay < 1, "trainer",
             "an ema_decay of at least 0 and below 1", options_.ema_decay);
  for (auto& [name, generator] : generators_of(options_.device)) {
    generator.set_current_seed(options_.seed);
  }
}

bool Trainer::resume(Task& task, optim::MultiTensorOptimizer& optimizer,
                     optim::Scheduler& scheduler) {
  const std::optional<Checkpoint> checkpoint = store_.load_newest();
  if (!checkpoint) return false;
  HONE_CHECK(checkpoint->step <= options_.steps, "trainer.steps",
             concat("at least the ", checkpoint->step, " steps that are done"), options_.steps);
  try {
    restore(*checkpoint, task, optimizer, scheduler);
  } catch (const Json::exception&) {
    fail_corrupt("checkpoint", concat("A fact of step ", checkpoint->step,
                                      " is missing or has another type; it is that of another "
                                      "version of hone, and --fresh starts again."));
  }
  return true;
}

// Everything is checked before the weights change.
void Trainer::restore(const Checkpoint& checkpoint, Task& task,
                      optim::MultiTensorOptimizer& optimizer, optim::Scheduler& scheduler) {
  const Json& facts = checkpoint.facts;
  if (options_.check_facts) options_.check_facts(facts.at("run"), checkpoint.step);
  match_weights(checkpoint.weights, task.weights());
  const Index taken = facts.at("steps_taken").get<Index>();
  if (!facts.at("best_step").is_null()) {
    best_step_ = facts.at("best_step").get<Index>();
    best_loss_ = facts.at("best_loss").get<double>();
  }
  if (facts.contains("memory_actions")) {
    memory_actions_ = MemoryActions::from_json(facts.at("memory_actions"));
  }
  scheduler.load_state_dict(facts.value("scheduler", Json()).get<optim::SchedulerState>());
  precision_.load_state_dict(facts.value("loss_scale", Json()));
  load_weights(checkpoint, task, optimizer);
  options_.accumulation_steps = memory_actions_.apply(task, options_.accumulation_steps);
  taken_ = taken;
  resumed_from_ = saved_step_ = done_ = checkpoint.step;
  lacks_validation_ = facts.value(kLacksValidation, false);
  extends_ = done_ < options_.steps && facts.value("steps", Index{-1}) == done_;
}

void Trainer::load_weights(const Checkpoint& checkpoint, Task& task,
                           optim::MultiTensorOptimizer& optimizer) {
  const TensorPairs weights = match_weights(checkpoint.weights, task.weights());
  const auto averages = restore_state(checkpoint.state, optimizer, options_.device);
  for (const auto& [weight, stored] : weights) weight.copy_(stored);
  if (!averages.empty()) averaged_buffers_ = buffers_of(task);
  for (const auto& [name, buffer, average] : averaged_buffers_) {
    const auto found = averages.find(name);
    if (found != averages.end()) average.copy_(found->second);
  }
}

MetricsRow Trainer::GroupSum::read() const {
  std::vector<torch::Tensor> scalars;
  const auto add = [&](const torch::Tensor& scalar) {
    scalars.push_back(scalar.to(parts.front().sum.device(), at::kDouble).reshape({}));
  };
  for (const LossSum& part : parts) {
    add(part.sum);
    for (const LossTerm& term : part.terms) add(term.mean);
  }
  const std::vector<double> values = optim::read_scalars(scalars);
  auto value = values.begin();
  MetricsRow row;
  double sum = 0;
  for (const LossSum& part : parts) {
    sum += *value++;
    for (const LossTerm& term : part.terms) {
      std::optional<double>& mean = row.*term.column;
      mean = mean.value_or(0) + *value++ * part.weight / weight;
    }
  }
  row.loss = sum / weight;
  return row;
}

// Runs forward and backward over the micro-batches of a step, and reads nothing from a device.
Trainer::GroupSum Trainer::accumulate(Task& task, Index step) {
  using memory::Phase;
  using memory::PhaseScope;
  const double nominal = task.nominal_weight();
  GroupSum group;
  for (Index micro = 0; micro < options_.accumulation_steps; ++micro) {
    check_stop();
    LossSum loss;
    {
      HONE_TRACE_ZONE("forward", {"step", step}, {"micro_batch", micro});
      const PhaseScope forward(Phase::Forward);
      const auto timer = stats_.time(amp::AmpPhase::Forward);
      const amp::AutocastGuard autocast = precision_.autocast();
      loss = task.micro_batch(step, micro);
    }
    HONE_TRACE_ZONE("backward", {"step", step}, {"micro_batch", micro});
    const PhaseScope backward(Phase::Backward);
    const auto timer = stats_.time(amp::AmpPhase::Backward);
    precision_.scale(loss.sum / nominal).backward();
    group.weight += loss.weight;
    loss.sum = loss.sum.detach();
    group.parts.push_back(std::move(loss));
  }
  return group;
}

struct Trainer::Run {
  Task& task;
  optim::MultiTensorOptimizer& optimizer;
  optim::Scheduler& scheduler;
  std::stop_token stop;
  memory::AbandonedBackward abandoned;
  MemoryBudget memory;
  MetricsSinks sinks;
  TailLoss train_loss;
  std::optional<MetricsRow> last{};  // added to the sinks
  nn::WeightMasks masks{nullptr};    // of keep_zeros
  double tokens = 0, seconds = 0, work_seconds = 0, loop_seconds = 0;
};

Trainer::StepOutcome Trainer::run_step(Run& run) {
  HONE_TRACE_ZONE("train step", {"step", done_});
  GroupSum group;
  drop_gradients(run.optimizer);
  const std::array<double, 3> before = stats_.seconds();
  const std::int64_t begin = clock_.now_ns();
  run.memory.run(done_, [&] { group = accumulate(run.task, done_); });
  const double weight = group.weight;
  HONE_CHECK(weight > 0, "trainer", "a batch in which something counts", weight);
  // An infinite limit measures the norm and clips nothing.
  const double limit =
      options_.clip_norm > 0 ? options_.clip_norm : std::numeric_limits<double>::infinity();
  const double decay = optim::warmed_ema_decay(options_.ema_decay, taken_);
  amp::PrecisionStep done;
  run.memory.run_optimizer([&] {
    HONE_TRACE_ZONE("optimizer step", {"step", done_});
    const memory::PhaseScope phase(memory::Phase::Step);
    const auto timer = stats_.time(amp::AmpPhase::Optimizer);
    done = precision_.step(run.optimizer,
                           {.inv_scale = run.task.nominal_weight() / weight,
                            .clip_norm = limit,
                            .clip_value = options_.clip_value,
                            .norm_type = options_.norm_type,
                            .ema_decay = decay},
                           done_, [&] { return group.read().loss; });
  });
  if (run.masks) run.masks->apply();
  if (done.report.stepped) {
    if (decay > 0) average_buffers(run.task, decay);
    ++taken_;
  } else {
    run.task.restore_buffers();
  }
  // Read after the optimizer's report, so that a device is waited for once.
  MetricsRow row = group.read();
  row.grad_norm = done.report.grad_norm;
  if (precision_.skips()) {
    row.found_inf = done.found_inf;
    row.skipped = !done.report.stepped;
  }
  if (done.update) row.loss_scale = done.update->scale;
  row.growth_tracker = done.growth_tracker;
  note_resources(before, row);
  if (done.update && !done.found_inf && done_ % ceil_div(options_.steps, kObservedSteps) == 0) {
    const double scale = done.update->scale;
    stats_.observe(
        amp::measure_gradients(run.optimizer, scale, run.task.nominal_weight() / weight / scale));
  }
  return {row, weight, seconds_between(begin, clock_.now_ns())};
}

void Trainer::note_resources(const std::array<double, 3>& before, MetricsRow& row) {
  stats_.settle();
  const std::array<double, 3>& after = stats_.seconds();
  row.forward_s = after[0] - before[0];
  row.backward_s = after[1] - before[1];
  row.optimizer_s = after[2] - before[2];
  const Index allocator = memory::reserved_peak_bytes(options_.device);
  stats_.note_memory(allocator);
  const Index bytes = options_.device.is_cpu() ? resident_bytes() : allocator;
  if (bytes > 0) row.memory_mb = static_cast<double>(bytes) / (1 << 20);
}

bool Trainer::validate_part(Run& run, MetricsRow& row) {
  HONE_TRACE_ZONE("validation", {"step", done_});
  const torch::NoGradGuard no_grad;
  const optim::AveragedWeights averaged(run.optimizer, averaged_buffers_);
  Validation validation;
  try {
    run.memory.run_validation([&] { validation = run.task.validate(/*all=*/false, {}); });
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::Cancelled) throw;
    lacks_validation_ = true;
    return false;
  }
  lacks_validation_ = false;
  set_validation(row, validation);
  if (!std::isfinite(validation.loss)) return false;
  if (best_step_ && validation.loss >= best_loss_) return false;
  best_step_ = done_;
  best_loss_ = validation.loss;
  return true;
}

Validation Trainer::validate_all(Run& run) {
  HONE_TRACE_ZONE("validation", {"step", done_});
  const torch::NoGradGuard no_grad;
  const optim::AveragedWeights averaged(run.optimizer, averaged_buffers_);
  std::optional<Progress> progress;
  const auto batch_done = [&](Index samples, Index of) {
    if (!progress) progress.emplace("validate", of, "samples");
    progress->update(samples);
    if (run.stop.stop_requested())
      fail(ErrorCategory::Cancelled, "train", "The run was interrupted.");
  };
  Validation validation;
  try {
    run.memory.run_validation([&] { validation = run.task.validate(/*all=*/true, batch_done); });
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::Cancelled) throw;
    fail(ErrorCategory::Cancelled, "train",
         concat("The run was interrupted in its last validation and step ", done_,
                " is saved; continue it with --resume."));
  }
  if (!std::isfinite(validation.loss)) {
    fail(ErrorCategory::Internal, "train",
         concat("The loss of the held-out data after step ", done_, " is not finite (",
                validation.loss, "); start again with a lower lr.peak."));
  }
  return validation;
}

// The validations that chose the best step saw a part of the data, so both are validated on all.
void Trainer::choose_weights(Run& run, TrainResult& result) {
  if (!best_step_ || *best_step_ == done_) return;
  load_weights(store_.load(*best_step_), run.task, run.optimizer);
  const Validation best = validate_all(run);
  if (best.loss < result.validation.loss) {
    result.validation = best;
    result.model_step = *best_step_;
  } else {
    load_weights(store_.load(done_), run.task, run.optimizer);
  }
  log_info(concat("the weights of step ", result.model_step, " are exported: their held-out loss ",
                  "is the lowest"));
}

void Trainer::average_buffers(Task& task, double decay) {
  const torch::NoGradGuard no_grad;
  if (averaged_buffers_.empty()) {
    averaged_buffers_ = buffers_of(task);
    return;
  }
  for (const auto& [name, buffer, average] : averaged_buffers_) average.lerp_(buffer, 1 - decay);
}

// The rows are on disk before a checkpoint that needs them appears.
void Trainer::save(Run& run) {
  HONE_TRACE_ZONE("checkpoint", {"step", done_});
  run.sinks.sync();
  Json facts = {{"run", options_.facts}};
  facts["memory_actions"] = memory_actions_.to_json();
  facts["best_step"] = best_step_ ? Json(*best_step_) : Json();
  facts["best_loss"] = best_step_ ? Json(best_loss_) : Json();
  facts["scheduler"] = run.scheduler.state_dict();
  facts["loss_scale"] = precision_.state_dict();
  facts["steps_taken"] = taken_;
  facts["steps"] = options_.steps;
  if (lacks_validation_) facts[kLacksValidation] = true;
  store_.save({.step = done_,
               .facts = std::move(facts),
               .weights = run.task.weights(),
               .state = collect_state(run.optimizer, averaged_buffers_, options_.device)},
              options_.keep_checkpoints, best_step_);
  saved_step_ = done_;
}

// Runs a step; nothing if it was interrupted, and then it has changed nothing.
std::optional<Trainer::StepOutcome> Trainer::try_step(Run& run) {
  const RandomState random(options_.device);
  try {
    return run_step(run);
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::Cancelled) throw;
  }
  run.abandoned.release();
  drop_gradients(run.optimizer);
  run.task.restore_buffers();
  random.restore();
  return std::nullopt;
}

void Trainer::end_interrupted(Run& run) {
  if (saved_step_ != done_ && done_ > 0) save(run);
  fail(ErrorCategory::Cancelled, "train",
       done_ == 0 ? std::string("The run was interrupted in its first step, so there is nothing to "
                                "save; --resume starts it again.")
                  : concat("The run was interrupted at step ", done_,
                           " and its state is saved; continue it with --resume."));
}

void Trainer::advance(Run& run) {
  const std::int64_t begin = clock_.now_ns();
  const std::optional<StepOutcome> outcome = try_step(run);
  if (!outcome) end_interrupted(run);
  const double elapsed = seconds_between(begin, clock_.now_ns());
  ++done_;
  MetricsRow row = outcome->row;
  row.step = done_;
  row.lr = run.scheduler.last_rates().front();
  row.tokens_per_s = elapsed > 0 ? outcome->weight / elapsed : 0;
  run.scheduler.step();
  if (run.seconds == 0) {
    tell_step(row, outcome->weight, elapsed);
    // The optimizer's state is there by now, and little is lost yet.
    store_.check_disk(
        bytes_of(run.task.weights()) +
            bytes_of(collect_state(run.optimizer, averaged_buffers_, options_.device)),
        options_.keep_checkpoints);
  }
  run.tokens += outcome->weight;
  run.seconds += elapsed;
  run.work_seconds += outcome->work_seconds;
  const bool is_last = done_ == options_.steps;
  const bool best = !is_last && is_due(options_.validate_every) && validate_part(run, row);
  const std::int64_t validated = clock_.now_ns();
  run.sinks.add(row);
  run.train_loss.add(row);
  run.last = row;
  record_scale(row, stats_);
  run.loop_seconds += elapsed + seconds_between(validated, clock_.now_ns());
  const bool stops = run.stop.stop_requested();
  if (best || stops || is_last || is_due(options_.checkpoint_every)) save(run);
  if (stops && !is_last) end_interrupted(run);
}

// What a user can tell the length of the run from.
void Trainer::tell_step(const MetricsRow& row, double weight, double seconds) const {
  log_info(concat("step ", row.step, " of ", options_.steps, ": ", weight, " ",
                  options_.weight_unit, " in ", fixed(seconds, 3), " s, loss ",
                  fixed(row.loss, 3)));
}

// An untrained model is no result.
void Trainer::check_taken() const {
  const Index skipped = done_ - taken_;
  if (skipped == 0) return;
  const std::optional<double> scale = precision_.loss_scale();
  const std::string reason =
      scale ? concat("gradients overflowed at their loss scale, which is now ", *scale)
            : "gradients were not finite";
  if (taken_ == 0) {
    fail(ErrorCategory::Internal, "train",
         concat("All ", done_, " steps were skipped because ", reason, "; lower ",
                scale ? "amp.init_scale." : "lr.peak."));
  }
  log_warning(concat(skipped, " of ", done_, " steps were skipped because ", reason));
}

TrainResult Trainer::fit(Task& task, optim::MultiTensorOptimizer& optimizer,
                         optim::Scheduler& scheduler, const std::stop_token& stop) {
  HONE_CHECK(&scheduler.optimizer() == &optimizer && scheduler.last_step() == done_, "trainer",
             concat("a scheduler of the optimizer, at step ", done_),
             concat("one at step ", scheduler.last_step()));
  const StopScope scope(stop);
  std::vector<MetricsRow> rows;
  if (!resumed_from_) store_.clear();
  if (resumed_from_) rows = kept_metrics(options_.folder / "metrics.csv", done_);
  TailLoss train_loss(options_.steps);
  for (const MetricsRow& row : rows) {
    train_loss.add(row);
    record_scale(row, stats_);
  }
  // The row to be filled anew of a run that is resumed at its very end or in a validation: with a
  // validation on all held-out data, or with the one that a longer run has there.
  std::optional<MetricsRow> last;
  const bool revalidates = lacks_validation_ || (extends_ && is_due(options_.validate_every));
  const bool refills = revalidates || done_ == options_.steps;
  if (refills && !rows.empty() && rows.back().step == done_) {
    last = rows.back();
    rows.pop_back();
  }
  Run run{task,
          optimizer,
          scheduler,
          stop,
          {},
          MemoryBudget(options_.max_memory_bytes, options_.device, task, optimizer, memory_actions_,
                       options_.accumulation_steps),
          MetricsSinks(options_.folder, options_.metrics, rows),
          train_loss,
          last};
  if (options_.keep_zeros) {
    torch::nn::Module* const module = task.module();
    HONE_CHECK(module != nullptr, "trainer.keep_zeros", "a task with a module", "none");
    run.masks = nn::masks_of_zeros(*module);
    const Index zeros = run.masks->zeros();
    HONE_REQUIRE(zeros > 0, "trainer.keep_zeros",
                 "The model has no zeros to keep: start from a pruned one by model.init.");
    log_info(concat("trainer.keep_zeros: ", zeros, " weights stay 0"));
  }
  if (revalidates) {
    MetricsRow lost;
    validate_part(run, run.last ? *run.last : lost);
    if (lacks_validation_) end_interrupted(run);
  }
  if (run.last) run.sinks.add(*run.last);
  if (done_ < options_.steps) {
    log_info(concat("training begins: step ", done_ + 1, " of ", options_.steps, ", with ",
                    task.nominal_weight() * static_cast<double>(options_.accumulation_steps), " ",
                    options_.weight_unit, " a step"));
    Progress progress("train", options_.steps, "steps");
    while (done_ < options_.steps) {
      advance(run);
      progress.update(done_, progress_note(run.last->loss, run.last->lr));
    }
  }
  check_taken();
  TrainResult result{.steps = options_.steps,
                     .skipped_steps = options_.steps - taken_,
                     .train_loss = run.train_loss.mean(),
                     .tokens_per_s = {},
                     .validation = validate_all(run),
                     .model_step = done_,
                     .amp = {},
                     .resumed_from = resumed_from_};
  if (run.last) {
    set_validation(*run.last, result.validation);
    run.sinks.replace_last(*run.last);
  }
  if (options_.exports_best) choose_weights(run, result);
  result.amp = amp::analyze(stats_);
  result.averaged_buffers = averaged_buffers_;
  if (run.seconds > 0) result.tokens_per_s = run.tokens / run.seconds;
  if (run.loop_seconds > 0) result.loop_share = 1 - run.work_seconds / run.loop_seconds;
  return result;
}

double measure_step_seconds(Task& task, Index accumulation_steps, Index repeats,
                            const Clock& clock) {
  std::vector<double> seconds;
  for (Index repeat = 0; repeat <= repeats; ++repeat) {
    const std::int64_t begin = clock.now_ns();
    torch::Tensor last;
    for (Index micro = 0; micro < accumulation_steps; ++micro) {
      const LossSum loss = task.micro_batch(repeat, micro);
      (loss.sum / task.nominal_weight()).backward();
      last = loss.sum.detach();
    }
    last.item<double>();  // waits for the device
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
