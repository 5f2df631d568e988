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

// One rule, three ways. They agree to rounding.
enum class Implementation {
  ForLoop,  // ATen operators, tensor by tensor
  Foreach,  // at::_foreach_* over all tensors; on CPUs a loop of operators, kept for the comparison
  Fused,    // hone's kernels: one pass (two with a norm or TAM) over all tensors
};

// What moments are kept in between steps; arithmetic is fp32. Per parameter group.
enum class StateDtype {
  Float32,
  BFloat16,  // rounded stochastically; 2 bytes
  // Codes of 8 bits and an fp32 scale per 256 elements (kernels/multi_tensor/codec/state_codec.h);
  // tensors below kFewestCoded elements stay fp32. Give embeddings a group of their own in fp32.
  Block8,
};
constexpr Index kFewestCoded = 4096;

// One piece of optimizer state. Names are those of the Python layout: exp_avg, exp_avg_sq,
// max_exp_avg_sq, momentum_buffer (shape and layout of the parameter; fp32, bf16 or 8-bit codes),
// step (int64 scalar), correlation (fp64: one, or one per row). hone's own: <name>_scale (fp32, of
// codes), <name>_strides (int64, the codes' strides, since scales belong to blocks of memory),
// average (fp32, the moving average of the parameter).
struct NamedState {
  Index parameter = 0;  // counts through all groups in order
  std::string name;
  torch::Tensor value;

  // Whether its memory counts: export_state() makes scalars and strides for the caller.
  bool takes_memory() const { return value.numel() > 1 && !name.ends_with("_strides"); }
};

// How one parameter is stepped.
struct TensorPlanEntry {
  Index group = 0, parameter = 0;  // parameter counts through all groups
  Index elements = 0, chunks = 0;
  std::string kernel;  // "fused", "fused_strided" (through a scratch), "foreach", "for_loop"
  StateDtype state_dtype = StateDtype::Float32;  // what this tensor's moments are kept in
  std::string method;                            // of the rule, empty where there is no choice
  // TAM: bytes of sums that each rank would hand out per step if ranks held parts of this tensor
  // that end with rows; in scope Model those of all tensors stand with the first.
  Index exchanged_bytes = 0;
};

struct OptimizerStats {
  Index steps = 0, skipped_steps = 0;
  double grad_norm = -1;  // of the last step; -1: not measured
  double clip_coef = 1;
  Index temporary_bytes = 0;  // of the last step, hone's own
  double correlation = 0;     // TAM: mean of s over the tensors of the last step
  double damping = 0;         // TAM: mean of the d that was used: (1 + s) / 2 or a fixed one
};

// ---- what rules are made of

// The fields of a rule's state; nullptr: the rule has no such field. Names in state_names().
struct StateFields {
  std::int64_t* step = nullptr;
  torch::Tensor* momentum = nullptr;
  torch::Tensor* second_moment = nullptr;
  torch::Tensor* extra = nullptr;
  torch::Tensor *momentum_scale = nullptr, *second_moment_scale = nullptr;  // of codes
  torch::Tensor* average = nullptr;
};
struct StateNames {
  const char *momentum = "", *second_moment = "", *extra = "";
  const char* own = "";  // of own_numbers()
};
struct SlotUse : kernels::RuleSlots {
  bool average = false;
  std::uint64_t variant = 0;  // anything else about the options that a plan depends on
  friend bool operator==(const SlotUse&, const SlotUse&) = default;
};

// One group's parameters with a gradient, and their state, for the ATen chains.
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

// What hone's optimizers share: a torch::optim::Optimizer whose step is one call into the
// multi-tensor kernels. Parameters and gradients are dense tensors:
//   on the CPU          fp32 with fp32 gradients, of any strides, as long as no two elements of a
//                       parameter share memory; or, where parameters are bf16 (rounded
//                       stochastically) or gradients bf16 or fp16, one dense block each of the same
//                       strides (so also for narrow state: others keep theirs in fp32)
//   on one CUDA device  fp32 with gradients of one type, such blocks (docs/cuda.md)
// Parameters without gradient are left alone: no decay, no step. Errors are hone::Error and leave
// parameters and state untouched.
class MultiTensorOptimizer : public torch::optim::Optimizer {
 public:
  ~MultiTensorOptimizer() override;

  // Evaluates the closure, if any, with gradients enabled; then step_with({}). Returns its loss.
  torch::Tensor step(LossClosure closure = nullptr) override;

  // What a trainer or gradient scaler calls: unscaling, clipping, finite check and what happens to
  // the gradients are part of the step. first_nonfinite_tensor of the report counts parameters
  // through all groups.
  StepReport step_with(const StepControl& control);

  // As torch::optim::Optimizer's; options that the group does not set take the optimizer's value.
  // Errors as of the constructor; then the group is not added.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  // Moving averages of the parameters, in their order: they begin as copies at the first step whose
  // control has an ema_decay and move with every such step. Undefined for parameters without.
  std::vector<torch::Tensor> averages() const;

  // Stochastic rounding draws for parameter i as for number `first` + i; 0 unless set. Optimizers
  // of the parts of one model then round as one optimizer over all does.
  void set_first_parameter(Index first);

  // Whether a parameter's step depends on the gradients of others.
  virtual bool needs_all_gradients() const { return false; }

  // One entry per parameter that has a gradient now.
  std::vector<TensorPlanEntry> plan() const;
  virtual OptimizerStats stats() const { return stats_; }

  // All state, in the order of the parameters, for saving: parameters not stepped so far have none.
  // The tensors are the optimizer's own; copy them before the next step. Saving these, and
  // importing them into an optimizer of the same class over parameters of the same shapes,
  // continues bit for bit.
  std::vector<NamedState> export_state() const;
  // Replaces all state by copies of these. Error{InvalidArgument}, and nothing changes, when a
  // parameter, name, shape or type does not fit or a parameter's state is incomplete.
  void import_state(std::span<const NamedState> state);

  // Options by group as Python's param_groups has them: {"lr": …, "params": [positions]}.
  Json param_groups_json() const;
  // import_state, and the options of these groups; absent and unknown keys change nothing. A
  // decoupled_weight_decay that the rule cannot keep is Error{Unsupported} where decay is not 0.
  // Error{InvalidArgument}, and nothing changes, when groups, their numbers of parameters, a value
  // or the state do not fit.
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
  // What a fused step works on.
  struct FusedTensors {
    const kernels::MultiTensorPlan& plan;
    DeviceStep* device = nullptr;  // steps them; null: they are the CPU's
  };
  MultiTensorOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups,
                       std::unique_ptr<Options> defaults, std::string name);
  MultiTensorOptimizer(MultiTensorOptimizer&& other) noexcept;

  const std::string& name() const { return name_; }

  // ---- what a rule adds ----
  virtual std::unique_ptr<ParamState> make_state() const = 0;
  // Error{Unsupported} for the state of another class.
  virtual StateFields fields_of(ParamState& state) const = 0;
  // Error{InvalidArgument} naming what of the group's options or parameters makes no sense.
  virtual void check_group(const torch::optim::OptimizerParamGroup& group) const = 0;
  // Error naming an option of which the groups may not differ.
  virtual void check_groups_agree() const { implementation(); }
  virtual StateNames state_names() const = 0;
  // The slots that a group with these options needs. All tensors have those that some group needs,
  // but only those of their group are saved.
  virtual SlotUse slots_of(const Options& options) const = 0;
  virtual Implementation implementation() const = 0;
  virtual std::unique_ptr<Options> adopt_options(const Options& given) const = 0;
  virtual StateDtype state_dtype_of(const Options& options) const = 0;
  virtual Json json_of(const Options& options) const = 0;
  virtual std::unique_ptr<Options> with_json(const Options& now, const Json& json,
                                             const std::string& where) const = 0;
  virtual float initial_second_moment(const Options&) const { return 0; }
  // Elements of a row of a parameter that is stepped row by row, 0 of others.
  virtual Index row_length_for(const torch::Tensor&, const Options&) const { return 0; }
  // The `count` fp64 numbers, one or one per row, that the rule keeps with a parameter; made where
  // there are none, Error{InvalidArgument} where there are others.
  virtual std::span<double> own_numbers(ParamState&, Index /*count*/) const { return {}; }
  Index count_own(const torch::Tensor& param, const Options& options) const;
  // Error naming what earlier versions saved and the rule has no more.
  virtual void check_imported(const NamedState&) const {}
  // What the options ask of every step.
  virtual void prepare_control(StepControl&) const {}
  // What the rule knows of a parameter.
  virtual void add_to_entry(const torch::Tensor&, const Options&, TensorPlanEntry&) const {}
  // A plan is about to be made of these tensors, whose state is complete; `group` may become any
  // that step_fused() passes on. Returns all of their own numbers, or one that they share.
  virtual std::vector<double> adopt_tensors(std::vector<Active>&) { return {}; }
  // How tensors there are stepped; null: by the CPU.
  virtual std::unique_ptr<DeviceStep> make_device_step(c10::Device device) const;
  // Fused: one kernel call.
  virtual StepReport step_fused(const FusedTensors& tensors, const StepControl& control) = 0;
  // Error for what ForLoop and Foreach cannot do; asked of every parameter before any is stepped.
  virtual void check_operators(const torch::Tensor&, const Options&) const {}
  // ForLoop and Foreach on one group whose gradients are already scaled. Counters are advanced
  // already: *fields.step is the number of this step.
  virtual void step_for_loop(ChainLists& lists, const Options& options) = 0;
  virtual void step_foreach(ChainLists& lists, const Options& options) = 0;
  // After a step that happened.
  virtual void after_step(const StepReport&) {}

  // Gives groups the options that adopt_options makes of theirs, or of the optimizer's where they
  // have none. Called by each rule's constructor.
  void adopt_group_options(const std::vector<torch::optim::OptimizerParamGroup>& given);
  // Runs `load`; when it throws or leaves state that does not fit the parameters, everything is as
  // before and a hone::Error says why.
  void load_or_restore(const std::function<void()>& load);
  // What a device holds of the state comes to the parameters' states: before they are read.
  void fetch_state() const;
  // What has stepped tensors of the plan, if it is a device.
  DeviceStep* stepped_device() const;
  // Option field of which the groups may not differ.
  template <class T, class Get>
  T common_option(const char* field, const Get& get) const;

  std::uint32_t rounding_key_of(Index parameter) const {
    return first_parameter_ + static_cast<std::uint32_t>(parameter);
  }

  OptimizerStats stats_;

 private:
  struct FusedCache;

  // The device's copy of the state is no longer current.
  void drop_device_state();
  void check_state_fits() const;
  void check_not_moved_from() const;
  std::vector<Active> collect(const SlotUse& use);
  void check_chain(const SlotUse& use) const;
  void ensure_state(std::vector<Active>& active, const SlotUse& use);
  // What a step made that did not happen.
  void drop_made_state();
  StateDtype state_dtype_for(const torch::Tensor& param, const torch::Tensor& grad,
                             const Options& options) const;
  // What the groups, as they are set now, need.
  SlotUse slots_for(const StepControl& control) const;
  void make_plan(const SlotUse& use);
  StepReport step_on_kernels(const StepControl& control);
  StepReport step_on_chain(const StepControl& control);
  bool measure_chain_norm(const std::vector<Active>& active, const StepControl& control,
                          StepReport& report) const;

  std::string name_;
  std::uint32_t first_parameter_ = 0;
  std::unique_ptr<FusedCache> cache_;
  // In this step.
  std::vector<void*> made_states_;
  std::vector<torch::Tensor*> made_tensors_;
};

// The value of an options field, or the error that groups differ in it.
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
