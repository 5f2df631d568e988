// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/machine/clock.h"
#include "hone/train/amp/mixed_precision.h"
#include "hone/train/optim/averaged_weights.h"
#include "hone/train/optim/lr/scheduler.h"
#include "hone/train/optim/multi_tensor_optimizer.h"
#include "hone/train/trainer/checkpoint.h"
#include "hone/train/trainer/memory_budget.h"
#include "hone/train/trainer/metrics_sinks.h"

namespace hone::trainer {

// A part of the loss for a column of the metrics: a scalar without gradient, the mean over a
// micro-batch.
struct LossTerm {
  std::optional<double> MetricsRow::*column;
  torch::Tensor mean;
};
// Σ of losses over a micro-batch and what it is a sum over (tokens that count, samples).
struct LossSum {
  torch::Tensor sum;  // scalar with gradient
  double weight = 0;
  std::vector<LossTerm> terms = {};
};

struct Validation {
  double loss = 0;                      // mean, nats
  double bits_per_byte = 0;             // language models; else 0
  std::optional<double> accuracy = {};  // classifiers
};

// If not empty, called before the first batch of a validation and after each batch; may throw.
using BatchDone = std::function<void(Index samples, Index of)>;

// What is trained: a model on its data.
class Task {
 public:
  virtual ~Task() = default;
  // A pure function of the weights and (step, micro), both from 0.
  virtual LossSum micro_batch(Index step, Index micro) = 0;
  // Weight of a full micro-batch, w₀ below.
  virtual double nominal_weight() const = 0;
  // Validates on a fixed part of the held-out data, or on all of it.
  virtual Validation validate(bool all, const BatchDone& batch_done) = 0;
  // Every parameter once, and every buffer that training changes, under names that do not change.
  virtual std::vector<CheckpointTensor> weights() = 0;

  // For trial steps: a sample of the greatest size that training uses, as tensors whose first
  // dimension counts samples, and the loss of such tensors. Throw Error{Unsupported} unless
  // overridden.
  virtual std::vector<torch::Tensor> largest_sample();
  virtual LossSum loss_of(const std::vector<torch::Tensor>& batch);

  // To save memory: computes activations again in the backward pass from now on. Returns false if
  // that is already so or is impossible.
  virtual bool recompute_activations() { return false; }
  // From now on, splits the samples of a step, in the same order, into about twice as many
  // micro-batches, and returns their number; 0 if they cannot be smaller.
  virtual Index halve_micro_batches() { return 0; }
  // Called when a step is skipped: restores buffers that its forward passes changed.
  virtual void restore_buffers() {}
  // false: they cannot be smaller.
  virtual bool halve_validation_batches() { return false; }
};

struct TrainerOptions {
  Index steps = 0, accumulation_steps = 1;
  // As in optim::StepControl; 0: none. Metrics have the norm of norm_type either way.
  double clip_norm = 0, clip_value = 0, norm_type = 2;
  Index validate_every = 0, checkpoint_every = 0, keep_checkpoints = 2;
  std::filesystem::path folder;         // metrics.csv and checkpoints/ lie here
  Index max_memory_bytes = 0;           // of CPU tensors, MemoryBudget; 0: no limit
  std::vector<MetricsFormat> metrics;   // in addition to metrics.csv
  std::string weight_unit = "samples";  // what LossSum::weight counts
  c10::Device device = at::kCPU;        // of the task's weights
  std::uint64_t seed = 0;  // of LibTorch's generators of the CPU and `device`, for tasks that draw
  // Moving average of the weights, updated in the fused step, and of the task's buffers. It is what
  // validation uses and what AveragedWeights returns afterwards. The decay follows
  // warmed_ema_decay(); 0: none.
  double ema_decay = 0;
  amp::AmpOptions amp;
  // Recorded in every checkpoint, and checked on resume after `done` steps.
  Json facts = Json::object();
  std::function<void(const Json& recorded, Index done)> check_facts;
};

struct TrainResult {
  Index steps = 0;
  Index skipped_steps = 0;  // of those, because a gradient was not finite
  // Mean over the last tenth of the steps, without those whose loss is not finite; nothing if none
  // is left or the log of a resumed run lacks them.
  std::optional<double> train_loss;
  // The speed of the steps that this process ran, if any; without validation and saving.
  std::optional<double> tokens_per_s;
  double loop_share = 0;  // share of their time outside forward, backward and optimizer step
  Validation validation;
  std::optional<Index> resumed_from;
  // With an ema_decay, of the task's buffers, for AveragedWeights.
  std::vector<optim::AveragedBuffer> averaged_buffers = {};
};

// Forward, backward and step over micro-batches. Per step: each micro-batch's backward runs on
// sum/w₀; the optimizer's fused step multiplies by w₀/Σweights, so that the gradient is that of the
// exact mean over the group, also for a short one.
class Trainer {
 public:
  explicit Trainer(TrainerOptions options, const Clock& clock = steady_clock());

  // Resumes from the newest complete checkpoint, if there is one. fit() then produces the bits of
  // the uninterrupted run, even if this run is longer than the one that ended there. Returns false
  // and changes nothing if there is no checkpoint. Throws Error{InvalidArgument} if check_facts
  // refuses, if more steps are done than the run has, or if tensors or scheduler do not fit. The
  // checkpoint may come from another device.
  bool resume(Task& task, optim::MultiTensorOptimizer& optimizer, optim::Scheduler& scheduler);

  // Runs to the end with checkpoints and a last validation on all held-out data. The scheduler,
  // which must belong to the optimizer, advances after every step. When `stop` becomes true,
  // finishes the step or validation if that takes half a second at most (StopScope), abandons it
  // otherwise, saves the last finished step, and throws Error{Cancelled}. The last validation
  // starts after the last step is saved. Throws Error{Internal} if a gradient is not finite (see
  // MixedPrecision::step) or every step was skipped.
  TrainResult fit(Task& task, optim::MultiTensorOptimizer& optimizer, optim::Scheduler& scheduler,
                  const std::stop_token& stop);

 private:
  struct Run;  // what fit() works with
  struct StepOutcome {
    MetricsRow row;  // without step number, rate and speed
    double weight = 0;
    double work_seconds = 0;  // of forward, backward and optimizer step
  };
  StepOutcome run_step(Run& run);
  std::optional<StepOutcome> try_step(Run& run);
  [[noreturn]] void end_interrupted(Run& run);
  void tell_step(const MetricsRow& row, double weight, double seconds) const;
  struct GroupSum {
    std::vector<LossSum> parts;  // of the micro-batches, without their graphs
    double weight = 0;
    // loss and terms, means over the group. Waits for the device, once.
    MetricsRow read() const;
  };
  GroupSum accumulate(Task& task, Index step);
  bool is_due(Index every) const { return every > 0 && done_ % every == 0; }
  // Runs a step, writes its row, and validates and saves if due.
  void advance(Run& run);
  // true: it is better than those before it.
  bool validate_part(Run& run, MetricsRow& row);
  Validation validate_all(Run& run);
  void save(Run& run);
  void restore(const Checkpoint& checkpoint, Task& task, optim::MultiTensorOptimizer& optimizer,
               optim::Scheduler& scheduler);
  // Moves the averages of the task's buffers, such as running means of normalizations, which belong
  // to the weights that they were seen with.
  void average_buffers(Task& task, double decay);
  // Throws Error{Internal} if all steps were skipped, and warns if some were.
  void check_taken() const;

  TrainerOptions options_;
  const Clock& clock_;
  std::vector<optim::AveragedBuffer> averaged_buffers_;
  CheckpointStore store_;
  amp::MixedPrecision precision_;
  Index done_ = 0, taken_ = 0;  // steps; taken: not skipped for a gradient that is not finite
  MemoryActions memory_actions_;
  std::optional<Index> resumed_from_;
  bool extends_ = false;             // resumed from the last step of a shorter run
  bool lacks_validation_ = false;    // that of the last step was interrupted
  std::optional<Index> saved_step_;  // of the newest checkpoint
  std::optional<Index> best_step_;
  double best_loss_ = 0;
};

// The median seconds of the forward and backward passes of a step on real batches, from which
// `--minutes` derives the number of steps. Weights stay unchanged, and gradients are removed.
double measure_step_seconds(Task& task, Index accumulation_steps, Index repeats,
                            const Clock& clock = steady_clock());

}  // namespace hone::trainer
