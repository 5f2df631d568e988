// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/cuda/step_check.h"

#include <utility>

#include "hone/core/check.h"
#include "hone/kernels/multi_tensor/schedule/check_step.h"

namespace hone::kernels::cuda {
namespace {

constexpr std::string_view kOp = "multi_tensor cuda";

bool is_allowed(Slot slot, Dtype dtype, Dtype grad) {
  switch (slot) {
    case Slot::Grad:
      return dtype == Dtype::Float32 || dtype == Dtype::BFloat16 || dtype == Dtype::Float16;
    case Slot::Copy:
      return dtype == (grad == Dtype::Float16 ? Dtype::Float16 : Dtype::BFloat16);
    default:
      return dtype == Dtype::Float32;
  }
}

void check_types(const MultiTensorLists& lists, Slot slot, Dtype grad) {
  const auto at = static_cast<std::size_t>(slot);
  const std::span<const TensorView> list = lists.*kSlotLists[at];
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Dtype dtype = list[i].dtype;
    if (is_allowed(slot, dtype, grad) && (slot != Slot::Grad || dtype == grad)) continue;
    const std::string_view wanted = slot == Slot::Grad
                                        ? "gradients of one type, f32, bf16 or f16, for "
                                    : slot == Slot::Copy ? "bf16, or f16 beside f16 gradients, for "
                                                         : "f32 for ";
    fail_unsupported(kOp, concat(wanted, kSlotNames[at], " of tensor ", i), name_of(dtype));
  }
}

}  // namespace

void check_options(const CudaStepOptions& options) {
  const Index chunk = options.chunk_elements;
  const bool power =
      chunk >= kSmallestChunk && chunk <= kLargestChunk && (chunk & (chunk - 1)) == 0;
  HONE_CHECK(chunk == 0 || power, kOp, "chunk_elements 0 or a power of two from 1024 to 65,536",
             chunk);
  HONE_CHECK(options.max_launches >= 0, kOp, "max_launches of at least 0", options.max_launches);
  if (options.scope != TAMScope::Model && options.scope != TAMScope::Tensor) {
    fail_unsupported(kOp, "TAM in Model or Tensor scope on CUDA", "another scope");
  }
}

void check_control(const CudaStepControl& control) {
  const StepControl& step = control.step;
  check_step_control(kOp, step);
  if (step.clip_value != 0) {
    fail_unsupported(kOp,
                     "A step on CUDA has no clip_value; clip with torch::nn::utils::"
                     "clip_grad_value_ before the step.");
  }
  if (step.norm_type != 2) {
    fail_unsupported(kOp,
                     "A step on CUDA has no norm_type but 2; clip with torch::nn::utils::"
                     "clip_grad_norm_ before the step.");
  }
  if (step.checked) fail_unsupported(kOp, "a step that is not checked on CUDA", "checked");
}

void check_device_lists(const MultiTensorPlan& plan, const MultiTensorLists& lists) {
  if (lists.grad.empty()) return;
  const Dtype grad = lists.grad.front().dtype;
  for (int slot = 0; slot < kSlots; ++slot) check_types(lists, static_cast<Slot>(slot), grad);
  for (Index i = 0; i < plan.tensors(); ++i) {
    const MultiTensorPlan::Tensor& tensor = plan.tensor(i);
    if (tensor.indirect < 0 || !plan.indirect(tensor).strided) continue;
    fail_unsupported(kOp, concat("dense blocks of one layout in every slot of tensor ", i),
                     "strides with gaps or another order");
  }
}

void check_used_slots(const MultiTensorLists& lists, const RuleSlots& used) {
  if (lists.param.empty()) return;
  for (const auto& [slot, wanted] :
       {std::pair{Slot::Momentum, used.momentum}, std::pair{Slot::SecondMoment, used.second_moment},
        std::pair{Slot::Extra, used.extra}}) {
    const auto at = static_cast<std::size_t>(slot);
    const bool there = !(lists.*kSlotLists[at]).empty();
    HONE_CHECK(there == wanted, kOp, concat(wanted ? "a " : "no ", kSlotNames[at], " list"),
               there ? "one" : "none");
  }
}

ListKind kind_of(const MultiTensorLists& lists) {
  ListKind kind;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    kind.has[slot] = !(lists.*kSlotLists[slot]).empty();
  }
  if (!lists.grad.empty()) kind.grad = lists.grad.front().dtype;
  return kind;
}

void check_kind(const ListKind& kind, const MultiTensorLists& lists) {
  HONE_CHECK(lists.param.empty() || kind_of(lists) == kind, kOp,
             "the lists and gradient type that the stepper was made with", "others");
}

}  // namespace hone::kernels::cuda
