// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "hone/kernels/multi_tensor/cuda/cuda_step.h"

// Checks for inputs that the CPU kernels accept and the CUDA kernels do not.
namespace hone::kernels::cuda {

// Throws Error{InvalidArgument} that names the field, and Error{Unsupported} for scopes other than
// Model and Tensor.
void check_options(const CudaStepOptions& options);

// Throws Error{InvalidArgument} that names the field, and Error{Unsupported} for a checked step.
void check_control(const CudaStepControl& control);

// Throws Error{Unsupported} that names the tensor, for types that CudaStepper does not have,
// gradients of several types, and tensors that are not dense blocks of one layout.
void check_device_lists(const MultiTensorPlan& plan, const MultiTensorLists& lists);

// Throws Error{InvalidArgument} that names a list that is missing, or present but not used.
void check_used_slots(const MultiTensorLists& lists, const RuleSlots& used);

// Which lists are present, and the type of gradients. Fixed at construction, because they determine
// the kernel.
struct ListKind {
  std::array<bool, kSlots> has{};
  Dtype grad = Dtype::Float32;
  bool operator==(const ListKind&) const = default;
};
ListKind kind_of(const MultiTensorLists& lists);
// Throws Error{InvalidArgument} unless `lists` have this kind or are empty.
void check_kind(const ListKind& kind, const MultiTensorLists& lists);

}  // namespace hone::kernels::cuda
