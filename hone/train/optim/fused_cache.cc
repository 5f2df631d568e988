// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/fused_cache.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "hone/train/interop.h"

namespace hone::optim {

using kernels::Slot;

namespace {

// Where the version counter lies, for a prefetch: a locked addition to far memory keeps all others
// waiting.
const void* counter_of(const torch::Tensor& tensor) {
  const c10::VariableVersion& version = tensor.unsafeGetTensorImpl()->version_counter();
  static_assert(sizeof version == sizeof(void*));
  const void* counter = nullptr;
  std::memcpy(&counter, &version, sizeof counter);
  return counter;
}

void bump_version(const torch::Tensor& tensor) {
  if (tensor.unsafeGetTensorImpl()->version_counter().enabled()) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace

void MultiTensorOptimizer::FusedCache::bump_versions(const torch::Tensor& param, bool grad) {
  if (!param.grad().defined()) return;
  bump_version(param);
  if (grad) bump_version(param.grad());
}

void MultiTensorOptimizer::FusedCache::read(const std::vector<Active>& active,
                                            const SlotUse& slots) {
  for (auto* list : {&param, &grad, &momentum, &second_moment, &extra, &average, &momentum_scale,
                     &second_moment_scale}) {
    list->clear();
  }
  group.clear();
  rounding_key.clear();
  row_length.clear();
  methods.clear();
  correlation.clear();
  steps.resize(active.size());
  const auto view_or_none = [](const torch::Tensor& tensor) {
    return tensor.defined() ? view_of(tensor, "scale") : TensorView();
  };
  for (const Active& a : active) {
    param.push_back(view_of(a.param, "parameter"));
    grad.push_back(view_of(a.grad, "gradient"));
    if (slots.momentum) {
      momentum.push_back(view_of(*a.fields.momentum, "momentum"));
      momentum_scale.push_back(view_or_none(*a.fields.momentum_scale));
    }
    if (slots.second_moment) {
      second_moment.push_back(view_of(*a.fields.second_moment, "exp_avg_sq"));
      second_moment_scale.push_back(view_or_none(*a.fields.second_moment_scale));
    }
    if (slots.extra) extra.push_back(view_of(*a.fields.extra, "max_exp_avg_sq"));
    if (slots.average) average.push_back(view_of(*a.fields.average, "average"));
    group.push_back(a.group);
    rounding_key.push_back(static_cast<std::uint32_t>(a.parameter));
    const bool by_row = a.method.scope == kernels::TAMScope::Row;
    row_length.push_back(by_row ? a.method.row_length : 0);
    methods.push_back(a.method);
    correlation.push_back(by_row ? a.fields.row_correlation->data_ptr<double>()
                                 : a.fields.correlation);
  }
}

double MultiTensorOptimizer::FusedCache::mean_correlation() const {
  double sum = 0;
  for (std::size_t i = 0; i < correlation.size(); ++i) {
    if (correlation[i] == nullptr) continue;
    const Index length = row_length[i];
    const Index rows = length > 0 ? param[i].elements() / length : 1;
    double of_rows = 0;
    for (Index row = 0; row < rows; ++row) of_rows += correlation[i][row];
    sum += of_rows / static_cast<double>(std::max<Index>(1, rows));
  }
  return correlation.empty() ? 0 : sum / static_cast<double>(correlation.size());
}

MultiTensorOptimizer::FusedCache::Known MultiTensorOptimizer::FusedCache::describe(
    const torch::Tensor& param, const Active& active) {
  Known one{};
  one.elements = param.numel();
  one.grad = active.grad.unsafeGetTensorImpl();
  one.param_type = param.scalar_type();
  one.grad_type = active.grad.scalar_type();
  one.state = active.state;
  one.fields = active.fields;
  one.behind.back() = param.unsafeGetTensorImpl()->autograd_meta();
  one.behind[kernels::kRuleSlots] = counter_of(param);
  const auto data_of = [](const torch::Tensor* tensor) {
    return tensor != nullptr && tensor->defined() ? tensor->const_data_ptr() : nullptr;
  };
  one.average = data_of(active.fields.average);
  one.momentum_scale = data_of(active.fields.momentum_scale);
  one.second_moment_scale = data_of(active.fields.second_moment_scale);
  one.row_correlation = data_of(active.fields.row_correlation);
  for (std::size_t s = 0; s < kernels::kRuleSlots; ++s) {
    const torch::Tensor* tensor = s == 0   ? &param
                                  : s == 1 ? &active.grad
                                           : active.fields.tensor(static_cast<Slot>(s));
    if (tensor == nullptr || !tensor->defined()) continue;
    one.data[s] = tensor->const_data_ptr();
    one.tensors[s] = tensor->unsafeGetTensorImpl();
    one.behind[s] = tensor->storage().unsafeGetStorageImpl();
  }
  return one;
}

void MultiTensorOptimizer::FusedCache::remember(const Groups& groups,
                                                const std::vector<Active>& active) {
  forget();
  group_sizes_.clear();
  if (plan.has_strided()) return;  // layouts that only the plan compares
  auto next = active.begin();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::vector<torch::Tensor>& params = groups[g].params();
    group_sizes_.push_back(params.size());
    for (std::size_t place = 0; place < params.size(); ++place) {
      const bool steps_now = next != active.end() && next->param.is_same(params[place]);
      Known one{};
      if (steps_now) {
        one = describe(params[place], *next);
        one.tensor = next++ - active.begin();
      }
      one.group = static_cast<std::uint32_t>(g);
      one.place = static_cast<std::uint32_t>(place);
      one.param = params[place].unsafeGetTensorImpl();
      known_.push_back(one);
    }
  }
}

void MultiTensorOptimizer::FusedCache::prefetch(std::size_t at) const {
  constexpr std::size_t kAhead = 8, kLine = 64;
  if (at + kAhead >= known_.size()) return;
  const Known& one = known_[at + kAhead];
  __builtin_prefetch(one.state);
  // Not null: a prefetch of what is not mapped walks the page table in vain.
  for (const void* pointer : one.behind) {
    if (pointer != nullptr) __builtin_prefetch(pointer);
  }
  for (const void* tensor : one.tensors) {
    if (tensor == nullptr) continue;
    for (std::size_t byte = 0; byte < sizeof(c10::TensorImpl); byte += kLine) {
      __builtin_prefetch(static_cast<const std::byte*>(tensor) + byte);
    }
  }
}

bool MultiTensorOptimizer::FusedCache::follow(Known& one, const torch::Tensor& p,
                                              const States& states) {
  if (one.param != p.unsafeGetTensorImpl()) return false;
  const torch::Tensor& g = p.grad();
  if (one.grad == nullptr || !g.defined()) return one.grad == nullptr && !g.defined();
  if (!still_there(one, p, states) || !follow_gradient(one, p)) return false;
  steps[static_cast<std::size_t>(one.tensor)] = *one.fields.step;
  return true;
}

bool MultiTensorOptimizer::FusedCache::follow_gradient(Known& one, const torch::Tensor& p) {
  constexpr auto kGrad = static_cast<std::size_t>(Slot::Grad);
  const torch::Tensor& g = p.grad();
  if (g.scalar_type() != one.grad_type || g.is_neg() || !g.strides().equals(p.strides()) ||
      !g.sizes().equals(p.sizes())) {
    return false;
  }
  if (one.grad == g.unsafeGetTensorImpl() && one.data[kGrad] == g.const_data_ptr()) return true;
  if (!g.is_cpu() || g.layout() != at::kStrided) return false;
  void* data = g.data_ptr();
  if (!plan.move_gradient(one.tensor, data)) return false;
  one.grad = one.tensors[kGrad] = g.unsafeGetTensorImpl();
  one.behind[kGrad] = g.storage().unsafeGetStorageImpl();
  one.data[kGrad] = data;
  return true;
}

// All but the gradient.
bool MultiTensorOptimizer::FusedCache::still_there(const Known& one, const torch::Tensor& p,
                                                   const States& states) {
  const auto state = states.find(p.unsafeGetTensorImpl());
  if (state == states.end() || one.state != state->second.get() ||
      one.data[0] != p.const_data_ptr() || one.elements != p.numel() ||
      one.param_type != p.scalar_type()) {
    return false;
  }
  for (int s = 2; s < kernels::kRuleSlots; ++s) {
    const auto slot = static_cast<std::size_t>(s);
    if (one.data[slot] == nullptr) continue;
    const torch::Tensor& tensor = *one.fields.tensor(static_cast<Slot>(s));
    if (!tensor.defined() || tensor.const_data_ptr() != one.data[slot] ||
        tensor.numel() != one.elements) {
      return false;
    }
  }
  const auto same = [](const void* known, const torch::Tensor* tensor) {
    return known == nullptr || (tensor->defined() && tensor->const_data_ptr() == known);
  };
  return same(one.average, one.fields.average) &&
         same(one.momentum_scale, one.fields.momentum_scale) &&
         same(one.second_moment_scale, one.fields.second_moment_scale) &&
         same(one.row_correlation, one.fields.row_correlation);
}

bool MultiTensorOptimizer::FusedCache::follow(const Groups& groups, const States& states,
                                              bool writes_grads) {
  if (known_.empty()) return false;
  const bool same_sizes =
      std::equal(groups.begin(), groups.end(), group_sizes_.begin(), group_sizes_.end(),
                 [](const auto& given, std::size_t size) { return given.params().size() == size; });
  if (!same_sizes) return false;
  constexpr Index kGrain = 128;
  std::atomic<bool> stands{true};
  libtorch_executor().parallel_for(
      static_cast<Index>(known_.size()), kGrain, [&](Index begin, Index end, int) {
        const auto param_of = [&](Index i) -> const torch::Tensor& {
          const Known& one = known_[static_cast<std::size_t>(i)];
          return groups[one.group].params()[one.place];
        };
        for (Index i = begin; i < end && stands.load(std::memory_order_relaxed); ++i) {
          const auto at = static_cast<std::size_t>(i);
          prefetch(at);
          if (!follow(known_[at], param_of(i), states)) stands = false;
        }
        for (Index i = begin; i < end && stands.load(std::memory_order_relaxed); ++i) {
          bump_versions(param_of(i), writes_grads);
        }
      });
  return stands;
}

}  // namespace hone::optim
