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

// LibTorch's current stream of a device, as kernels take it, while this lives. (A LibTorch before
// 2.12 does not tell the handle of a stream but the default one: that one then waits for the
// current stream, and the current stream for it.)
class CurrentStream {
 public:
  explicit CurrentStream(c10::Device device);
  ~CurrentStream();
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;

  kernels::Stream handle() const { return handle_; }

 private:
  c10::Device device_;
  bool stands_in_ = false;  // the default stream for the current one
  kernels::Stream handle_;
};

// The fused step of one plan's tensors on one CUDA device. t and the rule's own numbers lie in
// device memory; the host keeps its own counters, because it learns whether a step that may be
// skipped happened, and fetches both on request: replays of a captured graph advance only those of
// the device. A step waits for the device only if its report has findings: with clipping, a loss
// scale, a check for inf and NaN, or a checked step.
//
// A tensor that is stepped row by row (MultiTensorLists::row_length) is one entry per row for the
// stepper, with a counter and a number of its own. A checked step is stepped as any other between
// copies of parameters, state and what else it writes, which come back where a new value is not
// finite.
class DeviceStep {
 public:
  // The rule's stepper is made at the first step.
  explicit DeviceStep(c10::Device device) : device_(device) {}
  // With a stepper that follows the lists it is given.
  template <class Group>
  DeviceStep(c10::Device device, std::shared_ptr<kernels::CudaStepper<Group>> stepper)
      : device_(device), stepper_(std::move(stepper)) {}

  // The lists of a plan, with the host's counters. `own`: the numbers that the rule keeps now, one
  // per tensor or row, or one in all, or none. Error{Unsupported} for rows of tensors that are not
  // contiguous, and for rows beside state of fewer than 32 bits.
  void take(const kernels::MultiTensorLists& lists, std::span<const double> own);
  // Gradients are elsewhere.
  void follow(const kernels::MultiTensorLists& lists);

  // Group: the one of CudaStepper that the rule is made for. The host's counters are advanced where
  // the step happened.
  template <class Group>
  kernels::StepReport step(std::span<const Group> groups, const kernels::StepControl& control,
                           kernels::CudaStepOptions options = {});

  // The rule's numbers after the last step, as given to take().
  std::span<const double> own();
  // The numbers of one tensor, as own() read them last.
  std::span<const double> own_of(std::size_t tensor) const;
  // t of every tensor; nothing where a step failed half-way.
  std::span<const Index> steps();
  // Whether a step of these tensors has happened.
  bool has_stepped() const { return has_stepped_; }

 private:
  // A tensor as it was before a step.
  struct Kept {
    Index tensor;  // -1: of the device's own
    bool must_be_finite;
    at::Tensor now, before;
  };

  void begin();
  void finish(const kernels::StepReport& report);
  std::vector<Kept> keep(kernels::GradWriteBack grad) const;
  // Takes the step back unless all new values are finite.
  void check(const std::vector<Kept>& kept, kernels::StepReport& report) const;
  std::size_t tensors() const { return first_entry_.size() - 1; }
  Index tensor_of(Index entry) const;

  c10::Device device_;
  std::shared_ptr<void> stepper_;            // CudaStepper<Group> of the rule
  kernels::MultiTensorLists given_, lists_;  // of tensors; of entries
  std::vector<Index> first_entry_{0};        // of each tensor; one more than tensors
  // The views of entries, where some tensor has rows.
  std::array<std::vector<TensorView>, kernels::kSlots> entries_;
  std::vector<std::uint16_t> entry_groups_;
  bool lists_changed_ = false, has_stepped_ = false;
  std::span<Index> host_steps_;
  std::vector<Index> steps_there_;  // what the device has; empty: not known
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
