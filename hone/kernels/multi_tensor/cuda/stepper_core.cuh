// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "hone/kernels/cuda/runtime.cuh"
#include "hone/kernels/multi_tensor/cuda/combine.cuh"
#include "hone/kernels/multi_tensor/cuda/list_launch.cuh"
#include "hone/kernels/multi_tensor/cuda/step_check.h"

namespace hone::kernels::cuda {

// The parts of a stepper that do not depend on its rule: the list and its table, the numbers in
// device memory, pass 1 and the global norm.
class StepperCore {
 public:
  struct Sizes {
    int depth = 0;              // slots of pass 2
    Index resident_blocks = 0;  // blocks of pass 2's kernel that run at once on the device
    Index scalar_bytes = 0;     // per tensor
  };
  StepperCore(const MultiTensorLists& lists, const CudaStepOptions& options, const Sizes& sizes);

  void follow(const MultiTensorLists& lists);
  // Copies changed groups and values to the device. Throws Error{InvalidArgument} if this would be
  // needed while the stream is captured.
  void store(std::span<const std::byte> groups, bool groups_changed, const ControlValues& values,
             Stream stream);
  // Uploads what changed since the last step.
  LaunchContext begin(Stream stream, CudaStepReport& report);

  void gather(const LaunchContext& context, Statistics kind);
  void combine_all(const LaunchContext& context, Statistics kind);
  void finish_norm(const LaunchContext& context);
  StepReport read_report(Stream stream);

  const CudaStepOptions& options() const { return options_; }
  const WorkList& list() const { return list_; }
  Control* control() const { return control_.as<Control>(); }
  const void* groups() const { return groups_.as<void>(); }
  const std::uint16_t* group_of() const { return group_of_.as<std::uint16_t>(); }
  Index* step() const { return plan_.step().data(); }
  void* scalars() const { return scalars_.as<void>(); }
  double* chunk_sums() const { return chunk_sums_.as<double>(); }
  double* tensor_sums() const { return tensor_sums_.as<double>(); }
  const Index* first_block() const { return first_block_.as<Index>(); }
  // Throws Error{InvalidArgument} that names a tensor whose group is not below `groups`.
  void check_groups(std::size_t groups) const;
  // Like MultiTensorPlan::check_gradients_writable(), once per list.
  void check_gradients_writable();

 private:
  void take_plan();
  void upload_layout(Stream stream);
  void upload_entries(Stream stream);

  CudaStepOptions options_;
  Sizes sizes_;
  MultiTensorPlan plan_;
  WorkList list_;
  Transport transport_ = Transport::Auto;
  ListKind kind_;
  // Uploaded data, kept because copies from pageable memory may be pending.
  std::vector<TensorEntry> entries_;
  std::vector<BlockEntry> blocks_;
  std::vector<std::uint16_t> group_numbers_;
  bool layout_changed_ = true, entries_changed_ = true, gradients_checked_ = false;
  ControlValues stored_values_;  // the values on the device
  DeviceBuffer control_, groups_, scalars_, chunk_sums_, tensor_sums_;
  DeviceBuffer device_entries_, device_blocks_, first_block_, group_of_;
};

}  // namespace hone::kernels::cuda
