// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/device_step.h"

#include <ATen/Functions.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "hone/core/check.h"
#include "hone/train/interop.h"
#include "hone/train/optim/state_tensors.h"

namespace hone::optim {
namespace {

void make_wait(const c10::Stream& waiting, const c10::Stream& for_this) {
  c10::Event event(for_this.device_type());
  event.record(for_this);
  event.block(waiting);
}

template <class T>
at::Tensor upload(std::span<const T> values, at::ScalarType type, c10::Device device) {
  const auto size = static_cast<Index>(values.size());
  const at::Tensor host = at::empty({size}, at::TensorOptions(type));
  std::copy(values.begin(), values.end(), host.data_ptr<T>());
  return host.to(device);
}

// Entries are made anew when a gradient moves.
constexpr Index kMostEntries = Index{1} << 20;

constexpr auto kGrad = static_cast<std::size_t>(kernels::Slot::Grad);
constexpr auto kEma = static_cast<std::size_t>(kernels::Slot::Ema);

at::Tensor tensor_at(const TensorView& view, c10::Device device) {
  const std::span<const Index> sizes = view.shape.dims(), strides = view.strides.dims();
  return at::from_blob(view.data, {sizes.data(), sizes.size()}, {strides.data(), strides.size()},
                       at::TensorOptions(scalar_type_of(view.dtype)).device(device));
}

// One entry per row of `row_length` elements, or the view itself for 0.
void add_entries(const TensorView& view, Index row_length, const std::string& label,
                 std::vector<TensorView>& entries) {
  if (row_length == 0) return entries.push_back(view);
  // Tensors are dense blocks, so that rows are where the first dimension steps over each of them.
  if (!view.is_contiguous() && view.strides.dims()[0] != row_length) {
    fail_unsupported("rows on a device", concat("contiguous rows of ", label), "other strides");
  }
  if (static_cast<Index>(entries.size()) + view.elements() / row_length > kMostEntries) {
    fail_unsupported("rows on a device",
                     concat("at most ", kMostEntries, " rows of all parameters"),
                     concat("more at ", label, "; another method has fewer"));
  }
  const Index bytes = row_length * bytes_of(view.dtype);
  for (Index begin = 0; begin < view.bytes(); begin += bytes) {
    entries.emplace_back(static_cast<std::byte*>(view.data) + begin, view.dtype, Shape{row_length});
  }
}

}  // namespace

CurrentStream::CurrentStream(c10::Device device) : device_(device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream current = guard.getStream(device);
  const c10::Stream standard = guard.getDefaultStream(device);
  const auto handle_of = [&](const auto& stream) -> void* {
    if constexpr (requires { stream.native_handle(); }) {
      return stream.native_handle();
    } else {
      stands_in_ = stream != standard;
      return nullptr;  // the default stream
    }
  };
  handle_ = {handle_of(current)};
  if (stands_in_) make_wait(standard, current);
}

CurrentStream::~CurrentStream() {
  if (!stands_in_) return;
  try {
    const c10::impl::VirtualGuardImpl guard(device_.type());
    make_wait(guard.getStream(device_), guard.getDefaultStream(device_));
  } catch (...) {  // the device is lost; the next call reports it
  }
}

void DeviceStep::take(const kernels::MultiTensorLists& lists, std::span<const double> own) {
  const c10::InferenceMode normal(false);  // what is made now is written to in later steps
  host_steps_ = lists.step;
  steps_there_.clear();
  first_entry_ = {0};
  for (std::size_t i = 0; i < host_steps_.size(); ++i) {
    const Index length = lists.row_length[i];
    first_entry_.push_back(first_entry_[i] +
                           (length == 0 ? 1 : lists.param[i].elements() / length));
  }
  device_steps_ = at::empty({first_entry_.back()}, at::TensorOptions(at::kLong).device(device_));
  own_.assign(own.begin(), own.end());
  has_stepped_ = false;
  device_own_ = own.empty() ? at::Tensor() : upload(own, at::kDouble, device_);
  follow(lists);
}

void DeviceStep::follow(const kernels::MultiTensorLists& lists) {
  given_ = lists_ = lists;
  lists_changed_ = true;
  lists_.step = {device_steps_.data_ptr<std::int64_t>(),
                 static_cast<std::size_t>(first_entry_.back())};
  if (first_entry_.back() == static_cast<Index>(tensors())) return;
  for (std::size_t slot = 0; slot < kernels::kSlots; ++slot) {
    std::vector<TensorView>& to = entries_[slot];
    to.clear();
    const std::span<const TensorView> from = lists.*kernels::kSlotLists[slot];
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::string label = concat("parameter ", lists.rounding_key[i]);
      if (slot != kGrad && from[i].dtype != Dtype::Float32) {
        fail_unsupported("rows on a device", concat("fp32 in ", label, " and its state"),
                         name_of(from[i].dtype));
      }
      add_entries(from[i], lists.row_length[i], label, to);
    }
    lists_.*kernels::kSlotLists[slot] = to;
  }
  entry_groups_.clear();
  for (std::size_t i = 0; i < tensors(); ++i) {
    entry_groups_.resize(static_cast<std::size_t>(first_entry_[i + 1]), lists.group[i]);
  }
  lists_.group = entry_groups_;
  lists_.momentum_scale = lists_.second_moment_scale = {};  // there are no codes
  lists_.row_length = {};
  lists_.rounding_key = {};  // nothing is rounded
}

Index DeviceStep::tensor_of(Index entry) const {
  if (entry < 0) return entry;
  return std::upper_bound(first_entry_.begin(), first_entry_.end(), entry) - first_entry_.begin() -
         1;
}

// Counters that the user has set.
void DeviceStep::begin() {
  if (std::equal(host_steps_.begin(), host_steps_.end(), steps_there_.begin(),
                 steps_there_.end())) {
    return;
  }
  steps_there_.assign(host_steps_.begin(), host_steps_.end());
  std::vector<Index> of_entries;
  for (std::size_t i = 0; i < tensors(); ++i) {
    of_entries.resize(static_cast<std::size_t>(first_entry_[i + 1]), steps_there_[i]);
  }
  device_steps_.copy_(upload(std::span<const Index>(of_entries), at::kLong, device_));
}

std::vector<DeviceStep::Kept> DeviceStep::keep(kernels::GradWriteBack grad) const {
  std::vector<Kept> kept;
  const auto add = [&](Index tensor, bool must_be_finite, const at::Tensor& now) {
    kept.push_back({tensor, must_be_finite, now, now.clone()});
  };
  for (std::size_t slot = 0; slot < kernels::kSlots; ++slot) {
    if (slot == kGrad && grad == kernels::GradWriteBack::None) continue;
    const bool must_be_finite = slot != kGrad && slot != kEma;
    const std::span<const TensorView> views = given_.*kernels::kSlotLists[slot];
    for (std::size_t i = 0; i < views.size(); ++i) {
      add(static_cast<Index>(i), must_be_finite, tensor_at(views[i], device_));
    }
  }
  add(-1, false, device_steps_);
  if (device_own_.defined()) add(-1, false, device_own_);
  return kept;
}

void DeviceStep::check(const std::vector<Kept>& kept, kernels::StepReport& report) const {
  // In fp64 the sum of finite values is finite.
  std::vector<at::Tensor> sums;
  for (const Kept& one : kept) {
    report.temporary_bytes += static_cast<Index>(one.before.nbytes());
    if (one.must_be_finite) sums.push_back(at::sum(one.now, at::kDouble));
  }
  const std::vector<double> values = read_scalars(sums);
  Index first_bad = -1;
  auto value = values.begin();
  for (const Kept& one : kept) {
    if (!one.must_be_finite || std::isfinite(*value++)) continue;
    if (first_bad < 0 || one.tensor < first_bad) first_bad = one.tensor;
  }
  if (first_bad < 0) return;
  for (const Kept& one : kept) one.now.copy_(one.before);
  report.stepped = false;
  report.stopped_by_check = true;
  report.first_nonfinite_tensor = first_bad;
}

void DeviceStep::finish(const kernels::StepReport& report) {
  if (!report.stepped) return;
  for (Index& step : host_steps_) ++step;
  for (Index& step : steps_there_) ++step;
  has_stepped_ = true;
}

std::span<const double> DeviceStep::own() {
  if (has_stepped_ && !own_.empty()) {
    const at::Tensor host = device_own_.to(at::kCPU);
    std::copy_n(host.data_ptr<double>(), own_.size(), own_.begin());
  }
  return own_;
}

std::span<const double> DeviceStep::own_of(std::size_t tensor) const {
  const std::span<const double> all = own_;
  if (all.size() <= 1) return all;
  const Index first = first_entry_[tensor], end = first_entry_[tensor + 1];
  return all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first));
}

std::span<const Index> DeviceStep::steps() {
  if (has_stepped_ && !steps_there_.empty()) {
    const at::Tensor host = device_steps_.to(at::kCPU);
    for (std::size_t i = 0; i < tensors(); ++i) {
      steps_there_[i] = host.data_ptr<std::int64_t>()[first_entry_[i]];
    }
  }
  return steps_there_;
}

}  // namespace hone::optim
