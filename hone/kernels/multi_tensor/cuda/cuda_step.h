// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "hone/core/check.h"
#include "hone/kernels/cuda/stream.h"
#include "hone/kernels/multi_tensor/cuda/transport.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

struct CudaStepOptions {
  int device = 0;
  Transport transport = Transport::Auto;  // HONE_FORCE_KERNEL=multi_tensor:… overrides it
  Index max_launches = 0;                 // for one pass over the list; 0: no limit
  Index chunk_elements = 0;               // a power of two from 1024 to 65,536; 0: adaptive
  TAMScope scope = TAMScope::Tensor;
};

struct CudaStepControl {
  StepControl step;  // `checked` is refused
  // Device addresses or null, as for PyTorch's fused optimizers. Gradients are also divided by
  // *loss_scale. *found_inf becomes 1 if the step is skipped; otherwise it does not change.
  const float* loss_scale = nullptr;
  float* found_inf = nullptr;
};

// The work that one call of step() enqueued.
struct CudaStepReport {
  Transport transport = Transport::Auto;
  Index chunk_elements = 0;
  Index launches = 0;         // launches of kernels over the list
  Index scalar_launches = 0;  // launches of the small kernels between them
  Index argument_bytes = 0;   // argument bytes of kernels over the list
  Index table_uploads = 0;    // copies of the list to device memory
};

// The optimizer steps of one list of tensors on one CUDA device. All addresses, including step
// counters and correlations, are device memory; the host never reads them. Parameters, moments and
// moving averages are f32; gradients are f32, bf16 or f16. Low-precision copies are bf16, or f16
// with f16 gradients. Tensors are dense, and all slots have one layout.
//
// step() only enqueues: the host reads nothing and does not wait. t, η, σ and the other values of
// groups and control are in device memory and are stored again when they change, outside of a
// captured graph. A change that would need this inside a capture is an error. So a graph captured
// from step() replays with the values of the last store(). A capture fixes the tensors, and whether
// there is a norm or a loss scale. After a follow() that found moved tensors, capture again. Use
// one stream at a time.
template <class Group>
class CudaStepper {
 public:
  virtual ~CudaStepper() = default;

  // Call it if tensors moved or may have moved: O(T). Slots and types must be those at
  // construction.
  virtual void follow(const MultiTensorLists& lists) = 0;
  // Copies groups and control to the device if they differ from the values there.
  virtual void store(std::span<const Group> groups, const CudaStepControl& control,
                     Stream stream) = 0;
  // Calls store(), then enqueues the step. `correlation` is TAM's s, one per tensor or one in Model
  // scope; otherwise empty.
  virtual CudaStepReport step(std::span<const Group> groups, std::span<double> correlation,
                              const CudaStepControl& control, Stream stream) = 0;
  // Waits for the stream and reads the results of the last step. first_nonfinite_tensor and the
  // norm are known only if something requested them. Throws errors of earlier kernels.
  virtual StepReport read_report(Stream stream) = 0;
};

// Makes a rule's kernels on CUDA, for a Group with `static constexpr bool kOnCuda = true`. The
// rule's .cu file specializes it, and no_cuda.cc instantiates it for builds without CUDA.
template <class Group>
std::unique_ptr<CudaStepper<Group>> make_rule_on_cuda(const MultiTensorLists& lists,
                                                      const CudaStepOptions& options);

// Throws like MultiTensorPlan::build_or_throw(). Throws Error{Unsupported} for layouts and types
// not listed above, for rules without CUDA kernels, and in a build without CUDA.
template <class Group>
std::unique_ptr<CudaStepper<Group>> make_cuda_stepper(
    [[maybe_unused]] const MultiTensorLists& lists,
    [[maybe_unused]] const CudaStepOptions& options) {
  if constexpr (requires { Group::kOnCuda; }) {
    return make_rule_on_cuda<Group>(lists, options);
  } else {
    fail_unsupported("multi_tensor cuda", "a rule with CUDA kernels", "one that has none");
  }
}

}  // namespace hone::kernels
