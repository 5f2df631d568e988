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
  Transport transport = Transport::Auto;  // HONE_FORCE_KERNEL=multi_tensor:… wins
  Index max_launches = 0;                 // of one pass over the list; 0: as many as it takes
  Index chunk_elements = 0;               // a power of two from 1024 to 65,536; 0: adaptive
  TAMScope scope = TAMScope::Tensor;
};

struct CudaStepControl {
  StepControl step;  // `checked` is refused
  // Device addresses, or null: as PyTorch's fused optimizers take them. The gradients are also
  // divided by *loss_scale; *found_inf becomes 1 when the step is skipped, else stays.
  const float* loss_scale = nullptr;
  float* found_inf = nullptr;
};

// What one call of step() enqueued.
struct CudaStepReport {
  Transport transport = Transport::Auto;
  Index chunk_elements = 0;
  Index launches = 0;         // of kernels over the list
  Index scalar_launches = 0;  // of the small ones between them
  Index argument_bytes = 0;   // of the former
  Index table_uploads = 0;    // copies of the list to device memory
};

// The optimizer steps of one list of tensors on one CUDA device. All addresses, those of step
// counters and correlations included, are device memory and are never read by the host. Parameters,
// moments and moving averages are f32; gradients f32, bf16 or f16; low-precision copies bf16, or
// f16 beside f16 gradients. Tensors are dense, all slots of one layout.
//
// step() only enqueues: no host read, no wait. t, η, σ and the rest of groups and control lie in
// device memory and are stored anew when they change, outside of a captured graph; inside a capture
// a change that would need that is an error. So a graph captured from step() replays with the
// values of the last store(). Whether a norm or a loss scale is asked for is fixed in the capture,
// and so are the tensors: after a follow() that found them moved, capture anew. One stream at a
// time.
template <class Group>
class CudaStepper {
 public:
  virtual ~CudaStepper() = default;

  // The tensors moved, or may have: O(T). Slots and types must be those at construction.
  virtual void follow(const MultiTensorLists& lists) = 0;
  // Copies groups and control to the device, if they differ from what is there.
  virtual void store(std::span<const Group> groups, const CudaStepControl& control,
                     Stream stream) = 0;
  // store(), then the step. `correlation`: TAM's s, one per tensor or one in Model scope; else
  // empty.
  virtual CudaStepReport step(std::span<const Group> groups, std::span<double> correlation,
                              const CudaStepControl& control, Stream stream) = 0;
  // Waits for the stream and reads what the last step found; first_nonfinite_tensor and norm only
  // where something asked for them. Raises errors of the kernels before it.
  virtual StepReport read_report(Stream stream) = 0;
};

// A rule's kernels on CUDA, for a Group with `static constexpr bool kOnCuda = true`: the rule's .cu
// file specializes it, and no_cuda.cc instantiates it for builds without CUDA.
template <class Group>
std::unique_ptr<CudaStepper<Group>> make_rule_on_cuda(const MultiTensorLists& lists,
                                                      const CudaStepOptions& options);

// Errors as MultiTensorPlan::build_or_throw; Error{Unsupported} for layouts and types that are not
// above, for rules without CUDA kernels, and in a build without CUDA.
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
