// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/multi_tensor_optimizer.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <map>
#include <unordered_set>
#include <utility>

#include "hone/core/buffer.h"
#include "hone/core/check.h"
#include "hone/train/optim/fused_cache.h"

namespace hone::optim {
namespace {

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

// Does the state of this parameter go into a block shared with others? Thousands of small tensors
// then lie on few pages, one after the other.
bool shares_block(const torch::Tensor& param) {
  return param.numel() <= kernels::kChunkElements && param.is_non_overlapping_and_dense();
}

Index padded_elements(const torch::Tensor& tensor) {
  return round_up(tensor.numel(), kCacheLine / Index{sizeof(float)});
}

// Zeros in the layouts of `params`, each on cache lines of its own, in one block.
std::vector<torch::Tensor> zeros_in_one_block(const std::vector<const torch::Tensor*>& params) {
  Index elements = 0;
  for (const torch::Tensor* param : params) elements += padded_elements(*param);
  const auto memory = std::make_shared<Buffer>(elements * Index{sizeof(float)});
  const torch::Tensor block = at::from_blob(
      memory->data(), {elements}, [memory](void*) {}, at::TensorOptions(at::kFloat));
  std::vector<torch::Tensor> out;
  Index begin = 0;
  for (const torch::Tensor* param : params) {
    out.push_back(block.as_strided(param->sizes(), param->strides(), begin));
    begin += padded_elements(*param);
  }
  return out;
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

void MultiTensorOptimizer::ensure_state(std::vector<Active>& active, const SlotUse& use) {
  std::vector<torch::Tensor*> missing;
  std::vector<const torch::Tensor*> their_params;
  for (Active& a : active) {
    std::unique_ptr<ParamState>& state = state_[a.param.unsafeGetTensorImpl()];
    if (state == nullptr) state = make_state();
    a.state = state.get();
    a.fields = fields_of(*state);
    for (const auto& [used, tensor] : {std::pair{use.momentum, a.fields.momentum},
                                       std::pair{use.second_moment, a.fields.second_moment},
                                       std::pair{use.extra, a.fields.extra}}) {
      if (!used || tensor->defined()) continue;
      if (shares_block(a.param)) {
        missing.push_back(tensor);
        their_params.push_back(&a.param);
      } else {
        *tensor = at::zeros_like(a.param, at::MemoryFormat::Preserve);
      }
    }
  }
  if (missing.empty()) return;
  const std::vector<torch::Tensor> zeros = zeros_in_one_block(their_params);
  for (std::size_t i = 0; i < missing.size(); ++i) *missing[i] = zeros[i];
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
  ensure_state(active, use);
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

void MultiTensorOptimizer::make_plan() {
  const std::vector<Active> active = collect();
  FusedCache& cache = *cache_;
  cache.use = slots();
  cache.forget();
  cache.read(active, cache.use);
  cache.plan.follow_or_throw(cache.lists());
  cache.remember(param_groups_, active);
  cache.stepped.clear();
  for (const Active& a : active) cache.stepped.push_back({a.fields, a.parameter});
}

StepReport MultiTensorOptimizer::step_on_kernels(const StepControl& control) {
  FusedCache& cache = *cache_;
  if (!(cache.use == slots()) || !cache.nothing_moved(param_groups_, state_)) make_plan();
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
