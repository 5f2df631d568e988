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
  Silent,     // part contrast has had fewer than 0.5 % active hinges in three periods
  Shrinking,  // the features have less than half the norm that they had in the first period
  // In three, the cross entropy is that of chance, or one class is predicted for all: for more
  // than 95 %, and for more than half of the images of other classes.
  Collapsed,
};
std::string_view name_of(CollapseVerdict verdict);

struct CollapseGuardOptions {
  Index classes = 2;
  // Chance is not counted in the first ones: the learning rate rises.
  Index warm_up_epochs = 0;
  bool contrasts = false;          // whether part contrast has a weight, so that it can be silent
  bool stops = false;              // a collapse throws
  c10::Device device = c10::kCPU;  // of the logits
  // What to change, by verdict: a sentence.
  std::string if_silent, if_shrinking, if_collapsed;
};

// Watches training for the collapse of its features, without reading from a device but once in a
// period: a pass over the images, or as many as give kLeastSteps micro-batches.
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
  // The first one of a new epoch ends a period: its verdict, if it is not Ok and new, is a warning,
  // or with `stops`, if it is Collapsed, Error{Internal}. The state may be set back in between: a
  // verdict that was a warning is none again.
  void observe(const Observation& seen);
  // Judges what has been seen since the last period, if it is one; never throws.
  void finish();
  // The worst so far.
  CollapseVerdict verdict() const;
  // Everything that observe() changes.
  std::vector<trainer::CheckpointTensor> state();

 private:
  void end_period(bool stops);
  bool is_period() const;

  CollapseGuardOptions options_;
  // fp64 {cross entropy, norms, hinges, images, micro-batches}, and int64 {predictions, targets} by
  // class: sums of the period, on the device of the logits.
  torch::Tensor sums_, counts_;
  torch::Tensor memory_;                        // fp64 on the host, by Slot
  CollapseVerdict said_ = CollapseVerdict::Ok;  // the worst that was a warning
};

}  // namespace hone::task
