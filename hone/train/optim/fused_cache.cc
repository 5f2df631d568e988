// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/fused_cache.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "hone/train/interop.h"

namespace hone::optim {

namespace {

// Where a tensor lies and how it is read; false where no plan is made of such a tensor. (data_ptr()
// gives copy-on-write memory its own copy.)
bool describe(const torch::Tensor& tensor, const torch::Tensor* scale, kernels::SlotKey& key) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_neg()) return false;
  const at::ScalarType type = tensor.scalar_type();
  constexpr std::array kTypes{at::kFloat, at::kBFloat16, at::kHalf, at::kChar, at::kByte};
  if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end()) return false;
  const void* scales = scale != nullptr && scale->defined() ? scale->data_ptr() : nullptr;
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  key = {tensor.data_ptr(), kernels::layout_fingerprint(dtype_of(type, "optimizer tensor"),
                                                        {sizes.data(), sizes.size()},
                                                        {strides.data(), strides.size()}, scales)};
  return true;
}

}  // namespace

void MultiTensorOptimizer::FusedCache::read(const std::vector<Active>& active, const SlotUse& slots,
                                            std::uint32_t first_parameter) {
  for (auto* list : {&param, &grad, &momentum, &second_moment, &extra, &average, &momentum_scale,
                     &second_moment_scale}) {
    list->clear();
  }
  group.clear();
  rounding_key.clear();
  row_length.clear();
  steps.resize(active.size());
  const auto view_or_none = [](const torch::Tensor& tensor) {
    return tensor.defined() ? view_of(tensor, "scale") : TensorView();
  };
  // One that was moved to another device after the others is refused here.
  const c10::Device where = active.empty() ? at::kCPU : active.front().param.device();
  for (const Active& a : active) {
    param.push_back(view_of(a.param, where, "parameter"));
    grad.push_back(view_of(a.grad, where, "gradient"));
    if (slots.momentum) {
      momentum.push_back(view_of(*a.fields.momentum, where, "momentum"));
      momentum_scale.push_back(view_or_none(*a.fields.momentum_scale));
    }
    if (slots.second_moment) {
      second_moment.push_back(view_of(*a.fields.second_moment, where, "exp_avg_sq"));
      second_moment_scale.push_back(view_or_none(*a.fields.second_moment_scale));
    }
    if (slots.extra) extra.push_back(view_of(*a.fields.extra, where, "max_exp_avg_sq"));
    if (slots.average) average.push_back(view_of(*a.fields.average, where, "average"));
    group.push_back(a.group);
    rounding_key.push_back(first_parameter + static_cast<std::uint32_t>(a.parameter));
    row_length.push_back(a.row_length);
  }
}

void MultiTensorOptimizer::FusedCache::remember(const Groups& groups,
                                                const std::vector<Active>& active) {
  forget();
  group_sizes_.clear();
  auto next = active.begin();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::vector<torch::Tensor>& params = groups[g].params();
    group_sizes_.push_back(params.size());
    for (std::size_t place = 0; place < params.size(); ++place) {
      Known one{g, place, params[place].unsafeGetTensorImpl()};
      if (next != active.end() && next->param.is_same(params[place])) {
        one.tensor = next++ - active.begin();
      }
      known_.push_back(one);
    }
  }
}

bool MultiTensorOptimizer::FusedCache::follow(const Known& one, const torch::Tensor& p,
                                              const States& states) {
  if (one.param != p.unsafeGetTensorImpl()) return false;
  const torch::Tensor& g = p.grad();
  if (one.tensor < 0 || !g.defined()) return one.tensor < 0 && !g.defined();
  const auto at = static_cast<std::size_t>(one.tensor);
  const auto state = states.find(p.unsafeGetTensorImpl());
  if (state == states.end() || state->second.get() != stepped[at].state) return false;
  if (g.device() != p.device()) return false;
  const StateFields& fields = stepped[at].fields;
  std::array<kernels::SlotKey, kernels::kSlots> now{};
  const auto add = [&](kernels::Slot slot, bool used, const torch::Tensor* tensor,
                       const torch::Tensor* scale = nullptr) {
    return !used || describe(*tensor, scale, now[static_cast<std::size_t>(slot)]);
  };
  using kernels::Slot;
  if (!add(Slot::Param, true, &p) || !add(Slot::Grad, true, &g) ||
      !add(Slot::Momentum, use.momentum, fields.momentum, fields.momentum_scale) ||
      !add(Slot::SecondMoment, use.second_moment, fields.second_moment,
           fields.second_moment_scale) ||
      !add(Slot::Extra, use.extra, fields.extra) || !add(Slot::Ema, use.average, fields.average)) {
    return false;
  }
  const void* const known_gradient = plan.tensor(one.tensor).data(static_cast<int>(Slot::Grad));
  if (!plan.follow(one.tensor, now)) return false;
  steps[at] = *fields.step;
  if (device != nullptr && g.data_ptr() != known_gradient) {
    grad[at].data = g.data_ptr();
    gradients_moved_ = true;
  }
  return true;
}

bool MultiTensorOptimizer::FusedCache::follow(const Groups& groups, const States& states) {
  if (known_.empty()) return false;
  const bool same_sizes =
      std::equal(groups.begin(), groups.end(), group_sizes_.begin(), group_sizes_.end(),
                 [](const auto& given, std::size_t size) { return given.params().size() == size; });
  if (!same_sizes) return false;
  std::atomic<bool> stands{true};
  const auto follow_some = [&](Index begin, Index end, int) {
    for (Index i = begin; i < end && stands.load(std::memory_order_relaxed); ++i) {
      const Known& one = known_[static_cast<std::size_t>(i)];
      if (!follow(one, groups[one.group].params()[one.place], states)) stands = false;
    }
  };
  constexpr Index kGrain = 128;
  const auto count = static_cast<Index>(known_.size());
  if (device != nullptr) {
    // While a device computes, LibTorch's threads sleep, and waking them takes milliseconds.
    follow_some(0, count, 0);
  } else {
    libtorch_executor().parallel_for(count, kGrain, follow_some);
  }
  if (stands && device != nullptr && std::exchange(gradients_moved_, false))
    device->follow(lists());
  return stands;
}

void MultiTensorOptimizer::FusedCache::drop_device() {
  if (device == nullptr) return;
  device.reset();
  forget();
}

}  // namespace hone::optim
