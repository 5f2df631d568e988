// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "hone/kernels/multi_tensor/cuda/cuda_step.h"

namespace hone::optim {

// LibTorch's current stream of a device, for kernels, in this scope. (LibTorch before 2.12 only has
// the handle of the default stream. Then the default stream waits for the current one, and
// afterwards the current stream for the default one.)
class CurrentStream {
 public:
  explicit CurrentStream(c10::Device device);
  ~CurrentStream();
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;

  kernels::Stream handle() const { return handle_; }

 private:
  c10::Device device_;
  bool stands_in_ = false;  // true: the default stream replaces the current one
  kernels::Stream handle_;
};

// The fused step of one plan's tensors on one CUDA device. Step counters t and the rule's own
// numbers are in device memory. The host has counters of its own, because it knows whether a step
// happened. It fetches both from the device on request: replays of a captured graph only advance
// the device counters. A step waits for the device only if its report needs a result: with
// clipping, a loss scale, a check for inf and NaN, or a checked step.
//
// If a tensor is stepped row by row (MultiTensorLists::row_length), the stepper gets one entry per
// row, with its own counter and number. A checked step copies parameters, state and everything else
// that it writes, then steps as usual, and restores the copies if a new value is not finite.
class DeviceStep {
 public:
  // The rule's stepper is made at the first step.
  explicit DeviceStep(c10::Device device) : device_(device) {}
  // Uses a stepper that follows the lists that it is given.
  template <class Group>
  DeviceStep(c10::Device device, std::shared_ptr<kernels::CudaStepper<Group>> stepper)
      : device_(device), stepper_(std::move(stepper)) {}

  // Takes the lists of a plan, with the host's counters. `own` are the current numbers of the rule:
  // one per tensor or row, one in total, or none. Throws Error{Unsupported} for rows of tensors
  // that are not contiguous, and for rows if state has fewer than 32 bits.
  void take(const kernels::MultiTensorLists& lists, std::span<const double> own);
  // Updates the lists after gradients moved in memory.
  void follow(const kernels::MultiTensorLists& lists);

  // Group must be the group type of the rule's CudaStepper. Advances the host's counters if the
  // step happened.
  template <class Group>
  kernels::StepReport step(std::span<const Group> groups, const kernels::StepControl& control,
                           kernels::CudaStepOptions options = {});

  // Returns the rule's numbers after the last step, in the order of take().
  std::span<const double> own();
  // Returns the numbers of one tensor as of the last call of own().
  std::span<const double> own_of(std::size_t tensor) const;
  // Returns t of every tensor; empty if a step failed halfway.
  std::span<const Index> steps();
  // Whether a step of these tensors has happened.
  bool has_stepped() const { return has_stepped_; }

 private:
  // A tensor as it was before a step.
  struct Kept {
    Index tensor;  // -1: counters and numbers of the device
    bool must_be_finite;
    at::Tensor now, before;
  };

  void begin();
  void finish(const kernels::StepReport& report);
  std::vector<Kept> keep(kernels::GradWriteBack grad) const;
  // Undoes the step unless all new values are finite.
  void check(const std::vector<Kept>& kept, kernels::StepReport& report) const;
  std::size_t tensors() const { return first_entry_.size() - 1; }
  Index tensor_of(Index entry) const;

  c10::Device device_;
  std::shared_ptr<void> stepper_;            // CudaStepper<Group> of the rule
  kernels::MultiTensorLists given_, lists_;  // by tensor; by entry
  std::vector<Index> first_entry_{0};        // of each tensor, and the end
  // Views of entries; used if a tensor has rows.
  std::array<std::vector<TensorView>, kernels::kSlots> entries_;
  std::vector<std::uint16_t> entry_groups_;
  bool lists_changed_ = false, has_stepped_ = false;
  std::span<Index> host_steps_;
  std::vector<Index> steps_there_;  // counters on the device; empty: not known
  std::vector<double> own_;
  at::Tensor device_steps_, device_own_;
};

template <class Group>
kernels::StepReport DeviceStep::step(std::span<const Group> groups,
                                     const kernels::StepControl& control,
                                     kernels::CudaStepOptions options) {
  using Stepper = kernels::CudaStepper<Group>;
  const c10::DeviceGuard guard(device_);
  if (stepper_ == nullptr) {
    options.device = device_.index();
    stepper_ = std::shared_ptr<Stepper>(kernels::make_cuda_stepper<Group>(lists_, options));
    lists_changed_ = false;
  }
  auto& stepper = *static_cast<Stepper*>(stepper_.get());
  if (lists_changed_) stepper.follow(lists_);
  lists_changed_ = false;
  begin();
  const std::vector<Kept> kept = control.checked ? keep(control.grad) : std::vector<Kept>();
  kernels::CudaStepControl on_device;
  on_device.step = control;
  on_device.step.checked = false;
  kernels::StepReport report;
  try {
    const CurrentStream stream(device_);
    stepper.step(groups,
                 {device_own_.defined() ? device_own_.data_ptr<double>() : nullptr, own_.size()},
                 on_device, stream.handle());
    if (control.needs_global_norm()) report = stepper.read_report(stream.handle());
  } catch (...) {
    steps_there_.clear();
    throw;
  }
  report.first_nonfinite_tensor = tensor_of(report.first_nonfinite_tensor);
  if (control.checked && report.stepped) check(kept, report);
  finish(report);
  return report;
}

}  // namespace hone::optim
