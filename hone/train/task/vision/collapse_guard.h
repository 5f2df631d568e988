// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "hone/core/index.h"
#include "hone/train/trainer/checkpoint.h"

namespace hone::task {

enum class CollapseVerdict {
  Ok,
  Silent,     // fewer than 0.5 % active hinges of part contrast in three periods in a row
  Shrinking,  // the features have less than half of their norm in the first period
  // In three periods in a row, the cross entropy does not fall, and it is at chance level, or one
  // class has more than 95 % of predictions and more than half of the images of other classes.
  Collapsed,
};
std::string_view name_of(CollapseVerdict verdict);

struct CollapseGuardOptions {
  Index classes = 2;
  // These first epochs, in which the learning rate rises, do not count for Collapsed.
  Index warm_up_epochs = 0;
  bool contrasts = false;          // true if part contrast has a weight
  bool stops = false;              // observe() throws on a collapse
  c10::Device device = c10::kCPU;  // device of the logits
  // A sentence for each verdict that says what to change.
  std::string if_silent, if_shrinking, if_collapsed;
};

// Detects the collapse of features in training. Judges periods: a pass over the images, or several
// passes until there are kLeastSteps micro-batches. Reads from the device only after a pass.
class CollapseGuard {
 public:
  static constexpr Index kLeastSteps = 20;

  explicit CollapseGuard(CollapseGuardOptions options);

  // A micro-batch in training: logits [images, classes], targets int64 [images], features [images,
  // channels] or undefined, and the share of active hinges, a scalar, or undefined.
  struct Observation {
    Index epoch = 0;
    torch::Tensor logits, targets, features = {}, active_share = {};
  };
  // The first observation of a new epoch ends a period that is long enough. A verdict worse than
  // all before is a warning. With `stops`, Collapsed throws Error{Internal}. If the state is
  // restored to an earlier one, verdicts that were already warnings do not warn again.
  void observe(const Observation& seen);
  // Judges the observations since the last period if they are a full period; never throws.
  void finish();
  // The worst so far.
  CollapseVerdict verdict() const;
  // Everything that observe() changes, except which verdicts were warnings.
  std::vector<trainer::CheckpointTensor> state();

 private:
  void end_period(bool stops);
  bool is_period() const;

  CollapseGuardOptions options_;
  // Sums of the period, on the device of the logits: fp64 {cross entropy, norms, hinges, images,
  // micro-batches}, and int64 {predictions, targets} by class.
  torch::Tensor sums_, counts_;
  torch::Tensor memory_;                        // fp64 on the host, by Slot
  CollapseVerdict said_ = CollapseVerdict::Ok;  // the worst that was a warning
};

}  // namespace hone::task
