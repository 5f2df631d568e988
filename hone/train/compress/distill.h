// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/train/loss/distillation.h"
#include "hone/train/loss/top_k.h"
#include "hone/train/surgery/module_call.h"

// Trains a small model on the outputs of a large one.
namespace hone::nn {

struct DistillBatch {
  torch::Tensor inputs;
  // int64 class of each row of the outputs, those below 0 left out. Undefined: the student learns
  // from the teacher alone, and has no control and no accuracy.
  torch::Tensor targets = {};
  // What the teacher makes of the inputs, a row for each row of the outputs, kept from before: then
  // it is not called. Its temperature counts.
  std::optional<loss::TopK> taught = {};
};

struct DistillData {
  std::function<DistillBatch(Index step)>
      batch;                                // of steps 0, 1, …; the same again for the control
  std::vector<DistillBatch> held_out = {};  // on which both are measured; may be empty
};

struct DistillOptions {
  loss::DistillationOptions loss;
  Index steps = 1000;
  // Makes the optimizer of the student's parameters; empty: optim::AdamW with a rate of 0.001.
  std::function<std::shared_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)> optimizer =
      {};
  bool control = true;     // whether the same student is trained without the teacher, too
  std::uint64_t seed = 0;  // of LibTorch's generators during training
};

// One training of the student. Losses are means over the rows of a batch.
struct DistillRun {
  std::vector<double> total, soft, hard;  // of each step; a loss that was not computed is absent
  double final_loss = 0;                  // mean of the last ten of `total`
  // On the held-out rows: cross-entropy in nats, the share of rows whose largest output is the
  // target, and of those whose largest output is the teacher's. 0 without such rows.
  double held_out_loss = 0, accuracy = 0, agreement = 0;
};

struct DistillReport {
  Index teacher_parameters = 0, student_parameters = 0;
  DistillRun distilled{};
  std::optional<DistillRun> control{};  // the same start, batches, seed and steps, on targets alone
  // The accuracy of the distilled student minus that of the control, with its 95 % interval.
  double gain = 0, low = 0, high = 0;
  std::string verdict{};  // one sentence; a gain whose interval has 0 is called a tie

  double ratio() const {
    return static_cast<double>(teacher_parameters) / static_cast<double>(student_parameters);
  }
};
Json to_json(const DistillReport& report);

// Trains `student` on loss::distillation_sums(). Both models map inputs to logits [rows, classes]
// or [batch, positions, classes] of the same shape. The teacher computes in evaluation mode and
// does not change; the student trains in the mode that it is in, and has the distilled weights
// afterwards. The control is trained first, and its weights are put back.
//
// Throws Error{InvalidArgument} for options that are not valid, other shapes, or a loss that is not
// finite; then the student has the weights that it began with.
DistillReport distill(const ModuleCall& teacher, const ModuleCall& student, const DistillData& data,
                      const DistillOptions& options = {});

}  // namespace hone::nn
