// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/rule/rule_group.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::optim {

using kernels::GradWriteBack;
using kernels::StepControl;
using kernels::StepReport;

class DeviceStep;

// Three implementations of one rule. Results agree up to rounding.
enum class Implementation {
  ForLoop,  // ATen operators, tensor by tensor
  Foreach,  // at::_foreach_* over all tensors; on CPUs a loop of operators, kept for the comparison
  Fused,    // hone's kernels: one pass (two with a norm or TAM) over all tensors
};

// The type of moments between steps, per parameter group. Arithmetic is fp32. Moments of tensors
// that narrow state does not support (see MultiTensorOptimizer), max_exp_avg_sq and grad_avg stay
// fp32.
enum class StateDtype {
  Float32,
  BFloat16,  // rounded stochastically; 2 bytes
  // 8-bit codes with one fp32 scale per 256 elements (kernels/multi_tensor/codec/state_codec.h).
  // Tensors below kFewestCoded elements, or stepped by rows that are not whole blocks, stay fp32.
  // Put embeddings into a separate group with fp32 state.
  Block8,
};
constexpr Index kFewestCoded = 4096;

// One piece of optimizer state. Names follow the Python layout: exp_avg, exp_avg_sq,
// momentum_buffer (shape and layout of the parameter; fp32, bf16 or 8-bit codes), max_exp_avg_sq
// (the same, always fp32), step (int64 scalar), correlation (fp64: one, or one per row). Added by
// hone: <name>_scale (fp32 scales of 8-bit codes), <name>_strides (int64 strides of the codes,
// because scales belong to blocks of memory), and average (fp32 moving average of the parameter).
struct NamedState {
  Index parameter = 0;  // index across all groups, in order
  std::string name;
  torch::Tensor value;

  // True if the memory counts. export_state() creates scalars and strides for the caller.
  bool takes_memory() const { return value.numel() > 1 && !name.ends_with("_strides"); }
};

// The plan for one parameter.
struct TensorPlanEntry {
  Index group = 0, parameter = 0;  // parameter is the index across all groups
  Index elements = 0, chunks = 0;
  std::string kernel;  // "fused", "fused_strided" (through a scratch), "foreach", "for_loop"
  StateDtype state_dtype = StateDtype::Float32;  // type of this tensor's moments
  std::string method;                            // method of the rule; empty if there is no choice
  // TAM: bytes of sums that each rank would send per step if each rank had whole rows of this
  // tensor; 0 for method Vectorized and with fixed_damping. In scope Model, the first tensor has
  // the bytes for all tensors, and the others have 0.
  Index exchanged_bytes = 0;
};

struct OptimizerStats {
  Index steps = 0, skipped_steps = 0;
  double grad_norm = -1;  // of the last step; -1: not measured
  double clip_coef = 1;
  Index temporary_bytes = 0;  // of the last step, hone's own
  double correlation = 0;     // TAM: mean of s over the tensors of the last step
  double damping = 0;         // TAM: mean of the applied d, (1 + s) / 2 or fixed
};

// ---- parts of rules

// The fields of a rule's state; nullptr: the rule has no such field. Names in state_names().
struct StateFields {
  std::int64_t* step = nullptr;
  torch::Tensor* momentum = nullptr;
  torch::Tensor* second_moment = nullptr;
  torch::Tensor* extra = nullptr;
  torch::Tensor *momentum_scale = nullptr, *second_moment_scale = nullptr;  // scales of codes
  torch::Tensor* average = nullptr;
};
struct StateNames {
  const char *momentum = "", *second_moment = "", *extra = "";
  const char* own = "";  // name of own_numbers()
};
struct SlotUse : kernels::RuleSlots {
  bool average = false;
  std::uint64_t variant = 0;  // hash of other options that affect a plan
  friend bool operator==(const SlotUse&, const SlotUse&) = default;
};

// Parameters of one group with a gradient, and their state, for implementations by ATen operators.
struct ChainLists {
  std::vector<torch::Tensor> params, grads, momentum, second_moment, extra;
  std::vector<StateFields> fields;
  std::vector<torch::optim::OptimizerParamState*> states;
};

// Calls body(number of the group, parameter, its number through all groups) in order.
template <class Body>
void for_each_parameter(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                        const Body& body) {
  Index number = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const torch::Tensor& param : groups[g].params()) body(g, param, number++);
  }
}

// Base class of hone's optimizers: a torch::optim::Optimizer whose step is one call into the
// multi-tensor kernels. Parameters and gradients are dense tensors:
//   on the CPU          fp32 with fp32 gradients, of any strides, as long as no two elements of a
//                       parameter share memory. bf16 parameters (rounded stochastically) and bf16
//                       or fp16 gradients require dense blocks with the same strides for both.
//                       Narrow state requires the same; for other tensors, state is fp32.
//   on one CUDA device  fp32 dense blocks, with gradients of one type (docs/cuda.md).
// Parameters without gradient are skipped: no decay, no step. Errors are hone::Error and leave
// parameters and state unchanged.
class MultiTensorOptimizer : public torch::optim::Optimizer {
 public:
  ~MultiTensorOptimizer() override;

  // Evaluates the closure, if any, with gradients enabled; then step_with({}). Returns its loss.
  torch::Tensor step(LossClosure closure = nullptr) override;

  // The step for trainers and gradient scalers. Unscaling, clipping, the finite check and the
  // treatment of gradients are part of the step. first_nonfinite_tensor of the report is an index
  // across all groups.
  StepReport step_with(const StepControl& control);

  // Like add_param_group() of torch::optim::Optimizer. Options that the group does not set take the
  // optimizer's value. Throws like the constructor; then the group is not added.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  // Moving averages of the parameters, in their order. They begin as copies at the first step whose
  // control has an ema_decay, and move in every such step. Undefined for parameters that have none.
  std::vector<torch::Tensor> averages() const;

  // Makes stochastic rounding draw for parameter i as for number `first` + i (default 0).
  // Optimizers for the parts of a model then round like one optimizer for all.
  void set_first_parameter(Index first);

  // Whether a parameter's step depends on the gradients of others.
  virtual bool needs_all_gradients() const { return false; }

  // One entry per parameter that has a gradient now.
  std::vector<TensorPlanEntry> plan() const;
  virtual OptimizerStats stats() const { return stats_; }

  // Returns all state in the order of the parameters, for saving. Parameters that were never
  // stepped have none. The tensors belong to the optimizer; copy them before the next step. An
  // optimizer of the same class over parameters of the same shapes that imports them continues bit
  // for bit.
  std::vector<NamedState> export_state() const;
  // Replaces all state by copies of these. Throws Error{InvalidArgument}, and changes nothing, if a
  // parameter, name, shape or type does not fit or the state of a parameter is incomplete.
  void import_state(std::span<const NamedState> state);

  // Returns the options by group, as in Python's param_groups: {"lr": …, "params": [positions]}.
  Json param_groups_json() const;
  // Calls import_state() and sets the options of these groups. Absent and unknown keys change
  // nothing. Throws Error{Unsupported} for a decoupled_weight_decay that the rule cannot represent,
  // unless decay is 0. Throws Error{InvalidArgument}, and changes nothing, if groups, their numbers
  // of parameters, a value or the state do not fit.
  void import_all(const Json& param_groups, std::span<const NamedState> state);

 protected:
  using ParamState = torch::optim::OptimizerParamState;
  using Options = torch::optim::OptimizerOptions;

  // Parameters with a gradient, in order, with their state.
  struct Active {
    torch::Tensor param, grad;
    StateFields fields;
    ParamState* state = nullptr;
    std::uint16_t group = 0;
    Index parameter = 0;
    Index row_length = 0;
  };
  // The tensors of a fused step.
  struct FusedTensors {
    const kernels::MultiTensorPlan& plan;
    DeviceStep* device = nullptr;  // does the step; null: the CPU does
  };
  MultiTensorOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups,
                       std::unique_ptr<Options> defaults, std::string name);
  MultiTensorOptimizer(MultiTensorOptimizer&& other) noexcept;

  const std::string& name() const { return name_; }

  // ---- implemented by a rule ----
  virtual std::unique_ptr<ParamState> make_state() const = 0;
  // Throws Error{Unsupported} for the state of another class.
  virtual StateFields fields_of(ParamState& state) const = 0;
  // Throws Error{InvalidArgument} that names an invalid option or parameter of the group.
  virtual void check_group(const torch::optim::OptimizerParamGroup& group) const = 0;
  // Throws an error that names an option that differs between groups but must not.
  virtual void check_groups_agree() const { implementation(); }
  virtual StateNames state_names() const = 0;
  // Returns the slots that a group with these options needs. All tensors have the slots that any
  // group needs. A slot that its own group does not need is saved only if it is not zero.
  virtual SlotUse slots_of(const Options& options) const = 0;
  virtual Implementation implementation() const = 0;
  virtual std::unique_ptr<Options> adopt_options(const Options& given) const = 0;
  virtual StateDtype state_dtype_of(const Options& options) const = 0;
  virtual Json json_of(const Options& options) const = 0;
  virtual std::unique_ptr<Options> with_json(const Options& now, const Json& json,
                                             const std::string& where) const = 0;
  virtual float initial_second_moment(const Options&) const { return 0; }
  // Returns the elements per row of a parameter that is stepped row by row, otherwise 0.
  virtual Index row_length_for(const torch::Tensor&, const Options&) const { return 0; }
  // Returns the `count` fp64 numbers that the rule stores with a parameter: one, or one per row.
  // Creates them if there are none. Throws Error{InvalidArgument} if their number or type differs.
  virtual std::span<double> own_numbers(ParamState&, Index /*count*/) const { return {}; }
  Index count_own(const torch::Tensor& param, const Options& options) const;
  // Throws an error that names saved state of earlier versions that the rule no longer has.
  virtual void check_imported(const NamedState&) const {}
  // Applies the options to the control of every step.
  virtual void prepare_control(StepControl&) const {}
  // Adds the rule's information about a parameter.
  virtual void add_to_entry(const torch::Tensor&, const Options&, TensorPlanEntry&) const {}
  // Called before a plan is made from these tensors, whose state is complete. May change `group` to
  // any index that step_fused() passes on. Returns the own numbers of all tensors, or one that they
  // share.
  virtual std::vector<double> adopt_tensors(std::vector<Active>&) { return {}; }
  // Returns the step for tensors on this device; null for the CPU.
  virtual std::unique_ptr<DeviceStep> make_device_step(c10::Device device) const;
  // The step of Fused: one kernel call.
  virtual StepReport step_fused(const FusedTensors& tensors, const StepControl& control) = 0;
  // Throws an error for parameters that ForLoop and Foreach do not support. Called for every
  // parameter before any is stepped.
  virtual void check_operators(const torch::Tensor&, const Options&) const {}
  // The steps of ForLoop and Foreach for one group with scaled gradients. Counters are already
  // advanced: *fields.step is the number of this step.
  virtual void step_for_loop(ChainLists& lists, const Options& options) = 0;
  virtual void step_foreach(ChainLists& lists, const Options& options) = 0;
  // Called after a step that was not skipped.
  virtual void after_step(const StepReport&) {}

  // Sets the options of groups to adopt_options() of their own options, or of the optimizer's
  // options. Each rule's constructor must call it.
  void adopt_group_options(const std::vector<torch::optim::OptimizerParamGroup>& given);
  // Runs `load`. If it throws or the new state does not fit the parameters, restores everything and
  // throws a hone::Error with the reason.
  void load_or_restore(const std::function<void()>& load);
  // Copies state from the device to the parameters' states. Call it before reading them.
  void fetch_state() const;
  // The device step that has stepped tensors of the plan; null if there is none.
  DeviceStep* stepped_device() const;
  // Returns the value of an option that must not differ between groups.
  template <class T, class Get>
  T common_option(const char* field, const Get& get) const;

  std::uint32_t rounding_key_of(Index parameter) const {
    return first_parameter_ + static_cast<std::uint32_t>(parameter);
  }

  OptimizerStats stats_;

 private:
  struct FusedCache;

  // Drops the device's copy of the state, which is no longer current.
  void drop_device_state();
  void check_state_fits() const;
  void check_not_moved_from() const;
  std::vector<Active> collect(const SlotUse& use);
  void check_chain(const SlotUse& use) const;
  void ensure_state(std::vector<Active>& active, const SlotUse& use);
  // Discards state that a skipped or failed step created.
  void drop_made_state();
  StateDtype state_dtype_for(const torch::Tensor& param, const torch::Tensor& grad,
                             const Options& options) const;
  // Returns the slots that the groups need with their current options.
  SlotUse slots_for(const StepControl& control) const;
  void make_plan(const SlotUse& use);
  StepReport step_on_kernels(const StepControl& control);
  StepReport step_on_chain(const StepControl& control);
  bool measure_chain_norm(const std::vector<Active>& active, const StepControl& control,
                          StepReport& report) const;

  std::string name_;
  std::uint32_t first_parameter_ = 0;
  std::unique_ptr<FusedCache> cache_;
  // Created in the current step.
  std::vector<void*> made_states_;
  std::vector<torch::Tensor*> made_tensors_;
};

// Returns the value of an options field. Throws an error if groups differ in it.
template <class T, class Get>
T MultiTensorOptimizer::common_option(const char* field, const Get& get) const {
  const T first = get(param_groups_.front().options());
  for (const auto& group : param_groups_) {
    if (get(group.options()) == first) continue;
    fail_unsupported(name_, concat("the same ", field, " in all groups"), "different ones");
  }
  return first;
}

}  // namespace hone::optim
