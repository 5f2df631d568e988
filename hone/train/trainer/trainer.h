// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/machine/clock.h"
#include "hone/train/amp/amp_stats.h"
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
// Sum of losses over a micro-batch, and the number of items in it (tokens that count, or samples).
struct LossSum {
  torch::Tensor sum;  // scalar with gradient
  double weight = 0;
  std::vector<LossTerm> terms = {};
};

struct Validation {
  double loss = 0;                      // mean, nats
  double bits_per_byte = 0;             // for language models; else 0
  std::optional<double> accuracy = {};  // for classifiers
};

// If not empty, called before the first batch of a validation and after each batch; may throw.
using BatchDone = std::function<void(Index samples, Index of)>;

// The subject of training: a model and its data.
class Task {
 public:
  virtual ~Task() = default;
  // A pure function of the weights and (step, micro), both from 0.
  virtual LossSum micro_batch(Index step, Index micro) = 0;
  // Weight of a full micro-batch: w₀ of Trainer.
  virtual double nominal_weight() const = 0;
  // Validates on a fixed part of the held-out data, or on all of it.
  virtual Validation validate(bool all, const BatchDone& batch_done) = 0;
  // Every parameter once, and every buffer that training changes, under names that do not change.
  virtual std::vector<CheckpointTensor> weights() = 0;

  // For trial steps: largest_sample() returns a sample of the greatest size in training, as tensors
  // whose first dimension counts samples. loss_of() returns the loss of such tensors. Both throw
  // Error{Unsupported} unless overridden.
  virtual std::vector<torch::Tensor> largest_sample();
  virtual LossSum loss_of(const std::vector<torch::Tensor>& batch);

  // Saves memory: recomputes activations in the backward pass from now on. Returns false if that is
  // already active or impossible.
  virtual bool recompute_activations() { return false; }
  // From now on, splits the samples of a step, in the same order, into about twice as many
  // micro-batches, and returns their number; 0 if they cannot be smaller.
  virtual Index halve_micro_batches() { return 0; }
  // Called when a step is skipped: restores buffers that its forward passes changed.
  virtual void restore_buffers() {}
  // The module whose weights are trained, for what finds its layers; null if there is none.
  virtual torch::nn::Module* module() { return nullptr; }
  // Halves the batches of validations. Returns false if they cannot be smaller.
  virtual bool halve_validation_batches() { return false; }
};

struct TrainerOptions {
  Index steps = 0, accumulation_steps = 1;
  // As in optim::StepControl; 0: none. Metrics always have the norm of norm_type.
  double clip_norm = 0, clip_value = 0, norm_type = 2;
  Index validate_every = 0, checkpoint_every = 0, keep_checkpoints = 2;
  std::filesystem::path folder;         // location of metrics.csv and checkpoints/
  Index max_memory_bytes = 0;           // for tensors, see MemoryBudget; 0: no limit
  std::vector<MetricsFormat> metrics;   // in addition to metrics.csv
  std::string weight_unit = "samples";  // unit of LossSum::weight
  c10::Device device = at::kCPU;        // device of the task's weights
  std::uint64_t seed = 0;               // for LibTorch's generators of the CPU and `device`
  // Decay of a moving average of the weights, updated in the fused step, and of the task's buffers;
  // 0: none. Validation uses the average, and so does AveragedWeights afterwards. The decay follows
  // warmed_ema_decay().
  double ema_decay = 0;
  amp::AmpOptions amp;
  // Weights of linear layers and convolutions that are 0 when fit() begins stay 0.
  bool keep_zeros = false;
  bool exports_best = false;  // fit() ends with the weights whose held-out loss is least
  // Recorded in every checkpoint, and checked on resume after `done` steps.
  Json facts = Json::object();
  std::function<void(const Json& recorded, Index done)> check_facts;
};

struct TrainResult {
  Index steps = 0;
  Index skipped_steps = 0;  // steps that were skipped because a gradient was not finite
  // Mean over the last tenth of the steps, ignoring losses that are not finite. Empty if none is
  // left, or if the log of a resumed run lacks them.
  std::optional<double> train_loss;
  // The speed of the steps that this process ran, if any; without validation and saving.
  std::optional<double> tokens_per_s;
  double loop_share = 0;  // share of their time outside forward, backward and optimizer step
  Validation validation;
  Index model_step = 0;  // the step whose weights these are
  // Scales and overflows of all steps in the log; times, memory and gradients of the steps that
  // this process ran.
  amp::AmpAnalysis amp;
  std::optional<Index> resumed_from;
  // Averages of the task's buffers, for AveragedWeights, if there is an ema_decay.
  std::vector<optim::AveragedBuffer> averaged_buffers = {};
};

// Runs forward, backward and step over micro-batches. Each micro-batch runs backward on sum/w₀. The
// optimizer's fused step then multiplies by w₀/Σweights. The gradient is therefore that of the
// exact mean over the group, also for a short group.
class Trainer {
 public:
  explicit Trainer(TrainerOptions options, const Clock& clock = steady_clock());

  // Resumes from the newest complete checkpoint, if there is one. fit() is then bit-identical to an
  // uninterrupted run, even if the new run is longer than the recorded one. Returns false and
  // changes nothing if there is no checkpoint. Throws Error{InvalidArgument} if check_facts
  // refuses, if the checkpoint has more steps than the run, or if tensors or scheduler do not fit.
  // The checkpoint may come from another device.
  bool resume(Task& task, optim::MultiTensorOptimizer& optimizer, optim::Scheduler& scheduler);

  // Runs to the end with checkpoints and a final validation on all held-out data. The scheduler
  // must belong to the optimizer, and advances after every step. When `stop` becomes true, finishes
  // the step or validation if that takes at most half a second (StopScope), and abandons it
  // otherwise. Then saves the last finished step and throws Error{Cancelled}. The final validation
  // starts after the last step is saved. Throws Error{Internal} if a gradient is not finite (see
  // MixedPrecision::step) or every step was skipped.
  TrainResult fit(Task& task, optim::MultiTensorOptimizer& optimizer, optim::Scheduler& scheduler,
                  const std::stop_token& stop);

 private:
  struct Run;  // the working state of fit()
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
    std::vector<LossSum> parts;  // of the micro-batches, without autograd graphs
    double weight = 0;
    // loss and terms, means over the group. Waits for the device, once.
    MetricsRow read() const;
  };
  GroupSum accumulate(Task& task, Index step);
  // Fills in what the step took, if `before` are the seconds of phases before it.
  void note_resources(const std::array<double, 3>& before, MetricsRow& row);
  bool is_due(Index every) const { return every > 0 && done_ % every == 0; }
  // Runs a step, writes its row, and validates and saves if due.
  void advance(Run& run);
  // Returns true if the result is better than all previous ones.
  bool validate_part(Run& run, MetricsRow& row);
  Validation validate_all(Run& run);
  void save(Run& run);
  void restore(const Checkpoint& checkpoint, Task& task, optim::MultiTensorOptimizer& optimizer,
               optim::Scheduler& scheduler);
  void load_weights(const Checkpoint& checkpoint, Task& task,
                    optim::MultiTensorOptimizer& optimizer);
  // Loads the best validated weights, if their held-out loss is below that of the last step.
  void choose_weights(Run& run, TrainResult& result);
  // Updates the averages of the task's buffers. Running means of normalizations, for example,
  // belong to the weights that they were computed with.
  void average_buffers(Task& task, double decay);
  // Throws Error{Internal} if all steps were skipped, and warns if some were.
  void check_taken() const;

  TrainerOptions options_;
  const Clock& clock_;
  std::vector<optim::AveragedBuffer> averaged_buffers_;
  CheckpointStore store_;
  amp::MixedPrecision precision_;
  amp::AmpStats stats_;
  Index done_ = 0, taken_ = 0;  // steps; taken_: without skipped steps
  MemoryActions memory_actions_;
  std::optional<Index> resumed_from_;
  bool extends_ = false;             // resumed from the last step of a shorter run
  bool lacks_validation_ = false;    // the validation of the last step was interrupted
  std::optional<Index> saved_step_;  // of the newest checkpoint
  std::optional<Index> best_step_;
  double best_loss_ = 0;
};

// Returns the median seconds of the forward and backward passes of a step on real batches, from
// which `--minutes` derives the number of steps. Does not change weights, and removes gradients.
double measure_step_seconds(Task& task, Index accumulation_steps, Index repeats,
                            const Clock& clock = steady_clock());

}  // namespace hone::trainer
