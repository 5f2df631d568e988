// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/multi_tensor_optimizer.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <array>
#include <cmath>
#include <map>
#include <unordered_set>

#include "hone/core/check.h"
#include "hone/train/interop.h"

namespace hone::optim {
namespace {

using kernels::MultiTensorLists;
using kernels::MultiTensorPlan;
using kernels::Slot;

std::string describe(Index parameter) { return concat("parameter ", parameter); }

// fp32 and dense on the CPU, or Error{Unsupported} naming the parameter.
void check_kind(const std::string& op, const torch::Tensor& tensor, const std::string& what) {
  if (tensor.layout() != at::kStrided) {
    fail_unsupported(op, concat("a dense ", what), concat("layout ", c10::str(tensor.layout())));
  }
  if (tensor.is_complex()) fail_unsupported(op, concat("a real ", what), "complex numbers");
  if (!tensor.is_cpu()) fail_unsupported(op, concat("a CPU ", what), tensor.device().str());
  if (tensor.scalar_type() != at::kFloat) {
    fail_unsupported(op, concat("a fp32 ", what), at::toString(tensor.scalar_type()));
  }
}

using Groups = std::vector<torch::optim::OptimizerParamGroup>;

void check_parameters(const std::string& op, const Groups& groups) {
  HONE_CHECK(!groups.empty(), op, "at least one parameter group", "none");
  std::unordered_set<const void*> seen;
  Index parameter = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    HONE_CHECK(!groups[g].params().empty(), op, concat("at least one parameter in group ", g),
               "none");
    for (const torch::Tensor& param : groups[g].params()) {
      const std::string label = describe(parameter++);
      HONE_CHECK(param.defined(), op, concat("a tensor as ", label), "an undefined one");
      check_kind(op, param, label);
      HONE_CHECK(param.is_leaf(), op, concat("a leaf as ", label), "a result of other tensors");
      HONE_CHECK(seen.insert(param.unsafeGetTensorImpl()).second, op, concat(label, " listed once"),
                 "it twice");
    }
  }
}

}  // namespace

void fail_mixed_option(const std::string& optimizer, const char* field) {
  fail_unsupported(optimizer, concat("the same ", field, " in all groups"), "different ones");
}

torch::Tensor* MultiTensorOptimizer::StateFields::tensor(Slot slot) const {
  switch (slot) {
    case Slot::Momentum:
      return momentum;
    case Slot::SecondMoment:
      return second_moment;
    case Slot::Extra:
      return extra;
    default:
      return nullptr;
  }
}

// What the fused path keeps between steps. The plan holds addresses of `steps`.
struct MultiTensorOptimizer::FusedCache {
  std::vector<TensorView> param, grad, momentum, second_moment, extra;
  std::vector<std::uint16_t> group;
  std::vector<Index> steps;
  std::vector<double> correlation;
  MultiTensorPlan plan;

  // Who the plan was made for. Addresses only: a cache must not keep freed gradients alive.
  struct Known {
    const void *param, *grad, *state;  // TensorImpl, TensorImpl, ParamState
    const void* data[kernels::kSlots];
    Index elements;
    StateFields fields;
    // What a look at them reads: tensors, and the storages and autograd data they point to.
    std::array<const void*, kernels::kSlots> tensors;
    std::array<const void*, kernels::kSlots + 1> behind;
  };
  std::vector<Known> known;
  bool knows_all = false;  // false: strided tensors, whose layouts only the plan compares
  struct Stepped {
    StateFields fields;
    Index parameter;
  };
  std::vector<Stepped> stepped;  // the tensors of the plan
  SlotUse use;

  void remember(const std::vector<Active>& active);
  // Fetches what still_there(at) will look at: thousands of tensors are as many cache misses.
  void prefetch(std::size_t at) const;
  // Is this parameter what was remembered at place `at`, at the same addresses?
  bool still_there(std::size_t at, const torch::Tensor& p, const torch::Tensor& g,
                   const void* state) const;
  void read(const std::vector<Active>& active, const SlotUse& slots);
  MultiTensorLists lists() { return {param, grad, momentum, second_moment, extra, group, steps}; }
};

void MultiTensorOptimizer::FusedCache::read(const std::vector<Active>& active,
                                            const SlotUse& slots) {
  for (auto* list : {&param, &grad, &momentum, &second_moment, &extra}) list->clear();
  group.clear();
  steps.resize(active.size());
  correlation.resize(active.size());
  for (std::size_t i = 0; i < active.size(); ++i) {
    const Active& a = active[i];
    param.push_back(view_of(a.param, "parameter"));
    grad.push_back(view_of(a.grad, "gradient"));
    if (slots.momentum) momentum.push_back(view_of(*a.fields.momentum, "momentum"));
    if (slots.second_moment)
      second_moment.push_back(view_of(*a.fields.second_moment, "exp_avg_sq"));
    if (slots.extra) extra.push_back(view_of(*a.fields.extra, "max_exp_avg_sq"));
    group.push_back(a.group);
  }
}

void MultiTensorOptimizer::FusedCache::remember(const std::vector<Active>& active) {
  known.clear();
  knows_all = !plan.has_strided();
  for (const Active& a : active) {
    Known one{a.param.unsafeGetTensorImpl(),
              a.grad.unsafeGetTensorImpl(),
              a.state,
              {},
              a.param.numel(),
              a.fields,
              {},
              {}};
    one.behind.back() = a.param.unsafeGetTensorImpl()->autograd_meta();
    for (std::size_t s = 0; s < kernels::kSlots; ++s) {
      const torch::Tensor* tensor = s == 0   ? &a.param
                                    : s == 1 ? &a.grad
                                             : a.fields.tensor(static_cast<Slot>(s));
      if (tensor == nullptr || !tensor->defined()) continue;
      one.data[s] = tensor->const_data_ptr();
      one.tensors[s] = tensor->unsafeGetTensorImpl();
      one.behind[s] = tensor->storage().unsafeGetStorageImpl();
    }
    known.push_back(one);
  }
}

void MultiTensorOptimizer::FusedCache::prefetch(std::size_t at) const {
  constexpr std::size_t kAhead = 8, kLine = 64;
  if (at + kAhead >= known.size()) return;
  const Known& one = known[at + kAhead];
  __builtin_prefetch(one.state);
  for (const void* pointer : one.behind) __builtin_prefetch(pointer);
  for (const void* tensor : one.tensors) {
    for (std::size_t byte = 0; byte < sizeof(c10::TensorImpl); byte += kLine) {
      __builtin_prefetch(static_cast<const std::byte*>(tensor) + byte);
    }
  }
}

bool MultiTensorOptimizer::FusedCache::still_there(std::size_t at, const torch::Tensor& p,
                                                   const torch::Tensor& g,
                                                   const void* state) const {
  if (at >= known.size()) return false;
  const Known& one = known[at];
  if (one.param != p.unsafeGetTensorImpl() || one.grad != g.unsafeGetTensorImpl() ||
      one.state != state || one.data[0] != p.const_data_ptr() ||
      one.data[1] != g.const_data_ptr() || one.elements != p.numel() ||
      !g.strides().equals(p.strides()) || !g.sizes().equals(p.sizes())) {
    return false;
  }
  for (int s = 2; s < kernels::kSlots; ++s) {
    if (one.data[s] == nullptr) continue;
    const torch::Tensor& tensor = *one.fields.tensor(static_cast<Slot>(s));
    if (!tensor.defined() || tensor.const_data_ptr() != one.data[s] ||
        tensor.numel() != one.elements) {
      return false;
    }
  }
  return true;
}

MultiTensorOptimizer::MultiTensorOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups,
                                           std::unique_ptr<Options> defaults, std::string name)
    : Optimizer((check_parameters(name, groups), std::move(groups)), std::move(defaults)),
      name_(std::move(name)),
      cache_(std::make_unique<FusedCache>()) {}

MultiTensorOptimizer::~MultiTensorOptimizer() = default;

void MultiTensorOptimizer::adopt_group_options(
    const std::vector<torch::optim::OptimizerParamGroup>& given) {
  const std::size_t offset = param_groups_.size() - given.size();
  for (std::size_t g = 0; g < given.size(); ++g) {
    if (!given[g].has_options()) continue;
    param_groups_[offset + g].set_options(adopt_options(given[g].options()));
  }
}

void MultiTensorOptimizer::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  Groups all(param_groups_.begin(), param_groups_.end());
  all.push_back(group);
  check_parameters(name_, all);
  if (group.has_options()) adopt_options(group.options());  // throws before anything changes
  Optimizer::add_param_group(group);
  adopt_group_options({group});
}

void MultiTensorOptimizer::ensure_state(Active& active, const SlotUse& use) {
  std::unique_ptr<ParamState>& state = state_[active.param.unsafeGetTensorImpl()];
  if (state == nullptr) state = make_state();
  active.state = state.get();
  active.fields = fields_of(*state);
  const auto fill = [&](torch::Tensor* tensor, bool used) {
    if (used && !tensor->defined()) {
      *tensor = at::zeros_like(active.param, at::MemoryFormat::Preserve);
    }
  };
  fill(active.fields.momentum, use.momentum);
  fill(active.fields.second_moment, use.second_moment);
  fill(active.fields.extra, use.extra);
}

std::vector<MultiTensorOptimizer::Active> MultiTensorOptimizer::collect() {
  const SlotUse use = slots();
  std::vector<Active> active;
  Index parameter = 0;
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    for (const torch::Tensor& param : param_groups_[g].params()) {
      const Index index = parameter++;
      if (!param.grad().defined()) continue;
      check_kind(name_, param, describe(index));
      check_kind(name_, param.grad(), concat("gradient of ", describe(index)));
      active.push_back({param, param.grad(), {}, nullptr, static_cast<std::uint16_t>(g), index});
    }
  }
  for (Active& a : active) ensure_state(a, use);
  return active;
}

torch::Tensor MultiTensorOptimizer::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure != nullptr) {
    const c10::AutoGradMode enabled(true);
    loss = closure();
  }
  step_with({});
  return loss;
}

StepReport MultiTensorOptimizer::step_with(const StepControl& control) {
  const c10::NoGradGuard no_grad;
  StepControl asked = control;
  asked.checked = control.checked || wants_checked_step();
  const StepReport report =
      implementation() == Implementation::Fused ? step_on_kernels(asked) : step_on_chain(asked);
  ++(report.stepped ? stats_.steps : stats_.skipped_steps);
  stats_.grad_norm = report.grad_norm;
  stats_.clip_coef = report.clip_coef;
  stats_.temporary_bytes = report.temporary_bytes;
  after_step(report);
  return report;
}

// Everything at the addresses of the last step: the plan stands. Thousands of small tensors would
// otherwise cost more to look at than to step.
bool MultiTensorOptimizer::nothing_moved() const {
  const FusedCache& cache = *cache_;
  if (!cache.knows_all || !(cache.use == slots())) return false;
  std::size_t at = 0, g = 0;
  for (const auto& group : param_groups_) {
    for (const torch::Tensor& param : group.params()) {
      cache.prefetch(at);
      const torch::Tensor& grad = param.grad();
      if (!grad.defined()) continue;
      const auto state = state_.find(param.unsafeGetTensorImpl());
      if (state == state_.end() || !cache.still_there(at, param, grad, state->second.get()) ||
          cache.group[at] != g) {
        return false;
      }
      ++at;
    }
    ++g;
  }
  return at == cache.known.size();
}

void MultiTensorOptimizer::make_plan() {
  const std::vector<Active> active = collect();
  FusedCache& cache = *cache_;
  cache.use = slots();
  cache.knows_all = false;
  cache.read(active, cache.use);
  cache.plan.follow_or_throw(cache.lists());
  cache.remember(active);
  cache.stepped.clear();
  for (const Active& a : active) cache.stepped.push_back({a.fields, a.parameter});
}

StepReport MultiTensorOptimizer::step_on_kernels(const StepControl& control) {
  FusedCache& cache = *cache_;
  if (!nothing_moved()) make_plan();
  const auto& stepped = cache.stepped;
  for (std::size_t i = 0; i < stepped.size(); ++i) {
    const StateFields& fields = stepped[i].fields;
    cache.steps[i] = *fields.step;
    cache.correlation[i] = fields.correlation != nullptr ? *fields.correlation : 0;
  }
  StepReport report = step_fused(cache.plan, cache.correlation, control);
  if (report.first_nonfinite_tensor >= 0) {
    report.first_nonfinite_tensor =
        stepped[static_cast<std::size_t>(report.first_nonfinite_tensor)].parameter;
  }
  if (!report.stepped) return report;
  double sum = 0;
  for (std::size_t i = 0; i < stepped.size(); ++i) {
    const StateFields& fields = stepped[i].fields;
    *fields.step = cache.steps[i];
    if (fields.correlation != nullptr) *fields.correlation = cache.correlation[i];
    sum += cache.correlation[i];
  }
  stats_.correlation = stepped.empty() ? 0 : sum / static_cast<double>(stepped.size());
  stats_.damping = (1 + stats_.correlation) / 2;
  return report;
}

bool MultiTensorOptimizer::measure_chain_norm(const std::vector<Active>& active,
                                              const StepControl& control,
                                              StepReport& report) const {
  double total = 0;
  for (const Active& a : active) {
    // In fp64, so that the sum of squares of finite values stays finite.
    const double norm = at::norm(a.grad, 2, at::kDouble).item<double>();
    if (!std::isfinite(norm) && report.first_nonfinite_tensor < 0) {
      report.first_nonfinite_tensor = a.parameter;
    }
    total += norm * norm;
  }
  report.grad_norm = control.inv_scale * std::sqrt(total);
  if ((control.skip_nonfinite || control.inv_scale != 1) && report.first_nonfinite_tensor >= 0) {
    report.stepped = false;
    return false;
  }
  if (control.clip_norm > 0) {
    const double coef = control.clip_norm / (report.grad_norm + 1e-6);
    report.clip_coef = coef > 1 ? 1 : coef;
  }
  return true;
}

StepReport MultiTensorOptimizer::step_on_chain(const StepControl& control) {
  if (control.checked) {
    fail_unsupported(name_, "Implementation::Fused for a checked step", "a chain of operators");
  }
  std::vector<Active> active = collect();
  StepReport report;
  if (control.needs_global_norm() && !measure_chain_norm(active, control, report)) return report;
  const double scale = control.inv_scale * report.clip_coef;
  const bool foreach = implementation() == Implementation::Foreach;
  const SlotUse use = slots();
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    ChainLists lists;
    for (Active& a : active) {
      if (a.group != g) continue;
      lists.params.push_back(a.param);
      lists.grads.push_back(scale == 1 ? a.grad : a.grad * scale);
      if (use.momentum) lists.momentum.push_back(*a.fields.momentum);
      if (use.second_moment) lists.second_moment.push_back(*a.fields.second_moment);
      if (use.extra) lists.extra.push_back(*a.fields.extra);
      lists.fields.push_back(a.fields);
      ++*a.fields.step;
    }
    if (lists.params.empty()) continue;
    const Options& options = param_groups_[g].options();
    foreach
      ? step_foreach(lists, options) : step_for_loop(lists, options);
  }
  for (Active& a : active) {
    if (control.grad == GradWriteBack::Unscaled) a.grad.mul_(scale);
    if (control.grad == GradWriteBack::Zero) a.grad.zero_();
  }
  return report;
}

std::vector<TensorPlanEntry> MultiTensorOptimizer::plan() const {
  const Implementation way = implementation();
  std::vector<TensorPlanEntry> entries;
  Index parameter = 0;
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    for (const torch::Tensor& param : param_groups_[g].params()) {
      const Index index = parameter++;
      const torch::Tensor& grad = param.grad();
      if (!grad.defined()) continue;
      const bool flat =
          param.is_non_overlapping_and_dense() && grad.strides().equals(param.strides());
      TensorPlanEntry entry{static_cast<Index>(g), index, param.numel(), 1, {}, {}};
      entry.kernel = way == Implementation::Foreach ? "foreach" : "for_loop";
      if (way == Implementation::Fused) {
        entry.chunks = ceil_div(param.numel(), kernels::kChunkElements);
        entry.kernel = flat ? "fused" : "fused_strided";
      }
      entry.method = method_of(param_groups_[g].options());
      entries.push_back(std::move(entry));
    }
  }
  return entries;
}

}  // namespace hone::optim
