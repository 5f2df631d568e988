// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/fused_cache.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "hone/train/interop.h"

namespace hone::optim {

namespace {

// The map of states begins to look for a key some places before it.
constexpr std::size_t kProbeBytes = 64;

// Where the version counter lies, for a prefetch: a locked addition to far memory keeps all others
// waiting.
const void* counter_of(const torch::Tensor& tensor) {
  const c10::VariableVersion& version = tensor.unsafeGetTensorImpl()->version_counter();
  static_assert(sizeof version == sizeof(void*));
  const void* counter = nullptr;
  std::memcpy(&counter, &version, sizeof counter);
  return counter;
}

// Every line of it; nothing for null, because a prefetch of what is not mapped walks the page table
// in vain.
[[gnu::always_inline]] inline void prefetch_object(const void* object, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  if (object == nullptr) return;
  const auto* at = static_cast<const std::byte*>(object);
  for (std::size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(at + i);
  __builtin_prefetch(at + bytes - 1);
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
    rounding_key.push_back(static_cast<std::uint32_t>(a.parameter));
    const bool by_row = a.method.scope == kernels::TAMScope::Row;
    row_length.push_back(by_row ? a.method.row_length : 0);
    methods.push_back(a.method);
    correlation.push_back(by_row ? a.fields.row_correlation->data_ptr<double>()
                                 : a.fields.correlation);
  }
}

Index latest_of(std::span<const Index> steps) {
  return std::max_element(steps.begin(), steps.end()) - steps.begin();
}

double MultiTensorOptimizer::FusedCache::mean_correlation() const {
  // All tensors hold the one s; their mean may be another number in the last bit.
  const bool model = !methods.empty() && methods.front().scope == kernels::TAMScope::Model;
  if (model) return *correlation.front();
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

MultiTensorOptimizer::FusedCache::Place MultiTensorOptimizer::FusedCache::Place::of(
    const torch::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  return {&tensor,
          impl,
          storage,
          storage->data(),
          storage->data_ptr().get_deleter(),
          impl->storage_offset(),
          impl->numel(),
          tensor.scalar_type()};
}

// The tensor's own accessors are a dozen calls.
bool MultiTensorOptimizer::FusedCache::Place::holds(const torch::Tensor& tensor) const {
  return impl == tensor.unsafeGetTensorImpl() &&
         impl->unsafe_storage().unsafeGetStorageImpl() == storage && storage->data() == data &&
         storage->data_ptr().get_deleter() == deleter && impl->storage_offset() == offset &&
         impl->numel() == elements && tensor.scalar_type() == type;
}

void MultiTensorOptimizer::FusedCache::Place::prefetch() const {
  prefetch_object(impl, sizeof *impl);
  prefetch_object(storage, sizeof *storage);
}

MultiTensorOptimizer::FusedCache::Known MultiTensorOptimizer::FusedCache::describe(
    const torch::Tensor& p, const Active& active, const States& states) {
  Known one{};
  one.param = Place::of(p);
  one.grad = Place::of(active.grad);
  one.layout = layouts_.size();
  one.dimensions = static_cast<std::size_t>(p.dim());
  layouts_.insert(layouts_.end(), p.sizes().begin(), p.sizes().end());
  layouts_.insert(layouts_.end(), p.strides().begin(), p.strides().end());
  one.step = active.fields.step;
  one.state = active.state;
  const void* slot = &states.find(p.unsafeGetTensorImpl())->second;
  one.probe = static_cast<const std::byte*>(slot) - kProbeBytes;
  one.autograd = p.unsafeGetTensorImpl()->autograd_meta();
  one.version = counter_of(p);
  const StateFields& fields = active.fields;
  one.first_state = state_places_.size();
  for (const torch::Tensor* tensor :
       {fields.momentum, fields.second_moment, fields.extra, fields.average, fields.momentum_scale,
        fields.second_moment_scale, fields.row_correlation}) {
    if (tensor != nullptr && tensor->defined()) state_places_.push_back(Place::of(*tensor));
  }
  one.last_state = state_places_.size();
  return one;
}

void MultiTensorOptimizer::FusedCache::remember(const Groups& groups, const States& states,
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
        one = describe(params[place], *next, states);
        one.tensor = next++ - active.begin();
      }
      one.group = static_cast<std::uint32_t>(g);
      one.place = static_cast<std::uint32_t>(place);
      one.param.impl = params[place].unsafeGetTensorImpl();
      known_.push_back(one);
    }
  }
}

void MultiTensorOptimizer::FusedCache::prefetch(const Known& one) const {
  constexpr std::size_t kFirstMembers = 48;
  prefetch_object(one.probe, kProbeBytes + sizeof(void*));
  prefetch_object(one.state, kFirstMembers);
  prefetch_object(one.autograd, kFirstMembers);
  prefetch_object(one.version, sizeof(c10::intrusive_ptr_target) + sizeof(std::uint32_t));
  one.param.prefetch();
  one.grad.prefetch();
  for (std::size_t s = one.first_state; s < one.last_state; ++s) state_places_[s].prefetch();
}

bool MultiTensorOptimizer::FusedCache::follow(Known& one, const torch::Tensor& p,
                                              const States& states) {
  if (one.param.impl != p.unsafeGetTensorImpl()) return false;
  const torch::Tensor& g = p.grad();
  if (one.grad.impl == nullptr || !g.defined()) return one.grad.impl == nullptr && !g.defined();
  const auto state = states.find(p.unsafeGetTensorImpl());
  if (state == states.end() || one.state != state->second.get()) return false;
  if (!one.param.holds(p) || !has_layout(one, p)) return false;
  for (std::size_t s = one.first_state; s < one.last_state; ++s) {
    const Place& place = state_places_[s];
    if (!place.holds(*place.handle)) return false;
  }
  if (!follow_gradient(one, p, g)) return false;
  steps[static_cast<std::size_t>(one.tensor)] = *one.step;
  return true;
}

// And are its values those in memory?
bool MultiTensorOptimizer::FusedCache::has_layout(const Known& one,
                                                  const torch::Tensor& tensor) const {
  const Index* sizes = layouts_.data() + one.layout;
  return !tensor.is_neg() && tensor.sizes().equals({sizes, one.dimensions}) &&
         tensor.strides().equals({sizes + one.dimensions, one.dimensions});
}

bool MultiTensorOptimizer::FusedCache::follow_gradient(Known& one, const torch::Tensor& p,
                                                       const torch::Tensor& g) {
  const bool moved = !one.grad.holds(g);
  if (moved && (g.device() != p.device() || g.layout() != at::kStrided)) return false;
  if (g.scalar_type() != one.grad.type || !has_layout(one, g)) return false;
  if (!moved) return true;
  if (!plan.move_gradient(one.tensor, g.data_ptr())) return false;
  one.grad = Place::of(g);
  if (device != nullptr) {
    grad[static_cast<std::size_t>(one.tensor)].data = g.data_ptr();
    gradients_moved_.store(true, std::memory_order_relaxed);
  }
  return true;
}

bool MultiTensorOptimizer::FusedCache::follow(const Groups& groups, const States& states,
                                              bool writes_grads) {
  if (known_.empty()) return false;
  const bool same_sizes =
      std::equal(groups.begin(), groups.end(), group_sizes_.begin(), group_sizes_.end(),
                 [](const auto& given, std::size_t size) { return given.params().size() == size; });
  if (!same_sizes) return false;
  constexpr Index kGrain = 256, kAhead = 8;
  std::atomic<bool> stands{true};
  libtorch_executor().parallel_for(
      static_cast<Index>(known_.size()), kGrain, [&](Index begin, Index end, int) {
        const auto param_of = [&](Index i) -> const torch::Tensor& {
          const Known& one = known_[static_cast<std::size_t>(i)];
          return groups[one.group].params()[one.place];
        };
        const auto known = [&](Index i) -> Known& { return known_[static_cast<std::size_t>(i)]; };
        // Not beyond the end: another worker may be writing there.
        for (Index i = begin; i < std::min(begin + kAhead, end); ++i) prefetch(known(i));
        for (Index i = begin; i < end && stands.load(std::memory_order_relaxed); ++i) {
          if (i + kAhead < end) prefetch(known(i + kAhead));
          if (!follow(known(i), param_of(i), states)) stands = false;
        }
        for (Index i = begin; i < end && stands.load(std::memory_order_relaxed); ++i) {
          // As bump_versions, but for asking each parameter for its gradient once more.
          if (known(i).grad.impl == nullptr) continue;
          bump_version(param_of(i));
          if (writes_grads) bump_version(param_of(i).grad());
        }
      });
  if (stands && device != nullptr && gradients_moved_.exchange(false)) device->follow(lists());
  return stands;
}

void MultiTensorOptimizer::FusedCache::take_to_device() {
  using kernels::TAMScope;
  const TAMScope scope = methods.empty() ? TAMScope::Tensor : methods.front().scope;
  std::vector<double> values;
  for (const double* place : correlation) {
    if (place != nullptr) values.push_back(*place);
  }
  if (scope == TAMScope::Model && !values.empty()) {
    values = {values[static_cast<std::size_t>(latest_of(steps))]};
  }
  device->take(lists(), values, scope);
}

void MultiTensorOptimizer::FusedCache::fetch_from_device(const States& states) {
  if (device == nullptr || !device->has_stepped()) return;
  const std::span<const double> s = device->correlation();
  const std::span<const Index> t = device->steps();
  for (std::size_t i = 0; i < stepped.size(); ++i) {
    const auto found = states.find(stepped[i].key);
    if (found == states.end() || found->second.get() != stepped[i].state) continue;
    const StateFields& fields = stepped[i].fields;
    // Unless somebody has set it.
    if (!t.empty() && *fields.step == steps[i]) *fields.step = steps[i] = t[i];
    if (!s.empty()) *fields.correlation = s[s.size() == 1 ? 0 : i];
  }
}

void MultiTensorOptimizer::FusedCache::drop_device() {
  if (device == nullptr) return;
  device.reset();
  forget();
}

}  // namespace hone::optim
