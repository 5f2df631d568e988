// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "hone/kernels/multi_tensor/cuda/cuda_step.h"

// What the CPU kernels take and the CUDA kernels do not.
namespace hone::kernels::cuda {

// Error{InvalidArgument} naming the field; Error{Unsupported} for scopes other than Model and
// Tensor.
void check_options(const CudaStepOptions& options);

// Error{InvalidArgument} naming the field; Error{Unsupported} for a checked step.
void check_control(const CudaStepControl& control);

// Error{Unsupported} naming the tensor: types other than CudaStepper's, gradients of several types,
// tensors that are not dense blocks of one layout.
void check_device_lists(const MultiTensorPlan& plan, const MultiTensorLists& lists);

// Error{InvalidArgument} naming the list that is there and should not be, or the other way round.
void check_used_slots(const MultiTensorLists& lists, const RuleSlots& used);

// Which lists there are and the type of gradients: fixed at construction, since a kernel is chosen
// by them.
struct ListKind {
  std::array<bool, kSlots> has{};
  Dtype grad = Dtype::Float32;
  bool operator==(const ListKind&) const = default;
};
ListKind kind_of(const MultiTensorLists& lists);
// Error{InvalidArgument} unless `lists` are of that kind or empty.
void check_kind(const ListKind& kind, const MultiTensorLists& lists);

}  // namespace hone::kernels::cuda
