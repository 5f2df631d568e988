// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "hone/kernels/multi_tensor/cuda/stepper_core.cuh"
#include "hone/kernels/multi_tensor/cuda/update_step.h"

// The stepper of one rule; only that rule's .cu includes it.
namespace hone::kernels::cuda {

template <bool kUsed, int kSlot, int... kSlots>
constexpr auto add_slot(SlotList<kSlots...> list) {
  if constexpr (kUsed) {
    return SlotList<kSlots..., kSlot>();
  } else {
    return list;
  }
}

// Returns the slots of pass 2: the slots of the rule and, with kCopies, the two that follow it.
template <class Rule, bool kCopies>
constexpr auto slots_of_rule() {
  const auto momentum = add_slot<Rule::kMomentum, kMomentum>(SlotList<kParam, kGrad>());
  const auto moments = add_slot<Rule::kSecondMoment, kSecondMoment>(momentum);
  const auto state = add_slot<Rule::kExtra, kExtra>(moments);
  return add_slot<kCopies, kCopy>(add_slot<kCopies, kEma>(state));
}

// Limits kernels to 64 registers per thread, so that enough accesses are in flight to fill the
// memory system.
constexpr int kResidentBlocks = 4;

// Starts with the last blocks: the L2 cache still has what pass 1 read last.
template <class Policy, class G, class C, bool kCopies, class Table>
__global__ void __launch_bounds__(kBlockThreads, kResidentBlocks)
    update_kernel(const __grid_constant__ ListArguments<Table> a) {
  update_thread<Policy, G, C, kCopies>(a, static_cast<int>(gridDim.x - 1 - blockIdx.x),
                                       static_cast<int>(threadIdx.x), kBlockThreads);
}

template <class Policy, class G, class C, bool kCopies>
struct UpdateKernels {
  static constexpr const char* kName = "update_kernel";
  template <class Table>
  static auto kernel() {
    return update_kernel<Policy, G, C, kCopies, Table>;
  }
};

// Returns the number of blocks of pass 2 that the device runs at a time.
template <class Kernels>
Index count_resident_blocks(int device) {
  int blocks = 0, multiprocessors = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, Kernels::template kernel<DeviceTable>(), kBlockThreads, 0),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  return Index{blocks} * multiprocessors;
}

template <class Policy, class G, class C, bool kCopies>
class Stepper final : public CudaStepper<typename Policy::Group> {
 public:
  using Group = typename Policy::Group;
  using Kernels = UpdateKernels<Policy, G, C, kCopies>;
  using Slots = decltype(slots_of_rule<typename Policy::Rule, kCopies>());

  // The caller must have made options.device current.
  Stepper(const MultiTensorLists& lists, const CudaStepOptions& options)
      : core_(lists, options,
              {Slots::kDepth, count_resident_blocks<Kernels>(options.device),
               Index{sizeof(typename Policy::Scalars)}}) {}

  void follow(const MultiTensorLists& lists) override {
    const DeviceGuard guard(core_.options().device);
    core_.follow(lists);
  }

  void store(std::span<const Group> groups, const CudaStepControl& control,
             Stream stream) override {
    const DeviceGuard guard(core_.options().device);
    store_all(groups, control, stream);
  }

  CudaStepReport step(std::span<const Group> groups, std::span<double> correlation,
                      const CudaStepControl& control, Stream stream) override {
    const DeviceGuard guard(core_.options().device);
    check_correlation(correlation);
    store_all(groups, control, stream);
    CudaStepReport report;
    const LaunchContext context = core_.begin(stream, report);
    const auto prepare = prepare_arguments(correlation);
    const bool global = needs_global_norm(values_of(control));
    if constexpr (Policy::kTorque) {
      if (!global && !prepare.model_scope) {
        step_tensors(context, prepare, torque_statistics(groups));
        return report;
      }
    }
    step_all(context, prepare, global,
             Policy::kTorque ? torque_statistics(groups) : Statistics::Norm);
    return report;
  }

  StepReport read_report(Stream stream) override {
    const DeviceGuard guard(core_.options().device);
    return core_.read_report(stream);
  }

 private:
  using Prepare = PrepareArguments<Policy>;

  static ControlValues values_of(const CudaStepControl& control) {
    return {control.step.inv_scale,
            control.step.clip_norm,
            control.loss_scale,
            control.found_inf,
            static_cast<float>(1 - control.step.ema_decay),
            control.step.grad,
            control.step.skip_nonfinite};
  }

  void store_all(std::span<const Group> groups, const CudaStepControl& control, Stream stream) {
    check_control(control);
    for (const Group& group : groups) check_group("multi_tensor cuda", group);
    core_.check_groups(groups.size());
    if (control.step.grad != GradWriteBack::None) core_.check_gradients_writable();
    const bool changed = !std::equal(groups.begin(), groups.end(), groups_.begin(), groups_.end());
    core_.store(std::as_bytes(groups), changed, values_of(control), stream);
    groups_.assign(groups.begin(), groups.end());
  }

  void check_correlation(std::span<double> correlation) const {
    Index wanted = 0;
    if (Policy::kTorque) {
      wanted = core_.options().scope == TAMScope::Model ? 1 : core_.list().tensors();
    }
    HONE_CHECK(static_cast<Index>(correlation.size()) == wanted, "multi_tensor cuda",
               concat(wanted, " correlation values"), correlation.size());
  }

  // Returns the statistics that pass 1 measures for TAM.
  static Statistics torque_statistics(std::span<const Group> groups) {
    if constexpr (Policy::kTorque) {
      const bool decay = std::any_of(groups.begin(), groups.end(), [](const Group& group) {
        return !group.decoupled && group.weight_decay > 0;
      });
      return decay ? Statistics::TorqueWithDecay : Statistics::Torque;
    }
    return Statistics::None;
  }

  Prepare prepare_arguments(std::span<double> correlation) const {
    Prepare a;
    a.control = core_.control();
    a.groups = static_cast<const Group*>(core_.groups());
    a.group_of = core_.group_of();
    a.step = core_.step();
    a.correlation = correlation.data();
    a.scalars = static_cast<typename Policy::Scalars*>(core_.scalars());
    a.model_scope = Policy::kTorque && core_.options().scope == TAMScope::Model;
    return a;
  }

  void update(const LaunchContext& context) {
    launch_list<Kernels>(Slots(), context, {core_.control(), core_.scalars(), nullptr});
  }

  // Runs pass 1 over all tensors if anything needs it, then scalars, then pass 2.
  void step_all(const LaunchContext& context, const Prepare& prepare, bool global,
                Statistics kind) {
    const Index tensors = core_.list().tensors();
    if (tensors == 0) return;
    const bool sums = global || Policy::kTorque;
    if (sums) {
      core_.gather(context, kind);
      core_.combine_all(context, kind);
    }
    if (global) core_.finish_norm(context);
    const cudaStream_t stream = native(context.stream);
    if constexpr (Policy::kTorque) {
      if (prepare.model_scope) {
        model_correlation_kernel<<<1, kCombineThreads, 0, stream>>>(prepare, core_.control(),
                                                                    core_.tensor_sums(), tensors);
        check(cudaGetLastError(), "model_correlation_kernel");
        ++context.report->scalar_launches;
      }
    }
    const auto grid = static_cast<unsigned>(ceil_div(tensors, kCombineThreads));
    prepare_kernel<<<grid, kCombineThreads, 0, stream>>>(
        prepare, sums ? core_.tensor_sums() : nullptr, tensors);
    check(cudaGetLastError(), "prepare_kernel");
    ++context.report->scalar_launches;
    update(context);
  }

  // For TAM in Tensor scope without a global norm: sums and scalars in one launch.
  void step_tensors(const LaunchContext& context, const Prepare& prepare, Statistics kind) {
    const Index tensors = core_.list().tensors();
    if (tensors == 0) return;
    core_.gather(context, kind);
    CombineArguments combine;
    combine.chunk_sums = core_.chunk_sums();
    combine.first_block = core_.first_block();
    const auto grid = static_cast<unsigned>(tensors);
    const cudaStream_t stream = native(context.stream);
    if (kind == Statistics::Torque) {
      combine_and_prepare_kernel<3><<<grid, kCombineThreads, 0, stream>>>(combine, prepare);
    } else {
      combine_and_prepare_kernel<6><<<grid, kCombineThreads, 0, stream>>>(combine, prepare);
    }
    check(cudaGetLastError(), "combine_and_prepare_kernel");
    ++context.report->scalar_launches;
    update(context);
  }

  StepperCore core_;
  std::vector<Group> groups_;  // the groups on the device
};

// Gradients are f32 or halves; the copy of the new parameter is bf16, or f16 with f16 gradients.
template <class Policy>
std::unique_ptr<CudaStepper<typename Policy::Group>> make_stepper(const MultiTensorLists& lists,
                                                                  const CudaStepOptions& options) {
  check_options(options);
  using Rule = typename Policy::Rule;
  check_used_slots(lists, {Rule::kMomentum, Rule::kSecondMoment, Rule::kExtra});
  const DeviceGuard guard(options.device);
  const Dtype grad = lists.grad.empty() ? Dtype::Float32 : lists.grad.front().dtype;
  if (grad == Dtype::BFloat16) {
    return std::make_unique<Stepper<Policy, BF16, BF16, true>>(lists, options);
  }
  if (grad == Dtype::Float16) {
    return std::make_unique<Stepper<Policy, F16, F16, true>>(lists, options);
  }
  if (lists.copy.empty() && lists.ema.empty()) {
    return std::make_unique<Stepper<Policy, float, BF16, false>>(lists, options);
  }
  return std::make_unique<Stepper<Policy, float, BF16, true>>(lists, options);
}

}  // namespace hone::kernels::cuda
