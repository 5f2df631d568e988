// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/device_step.h"

#include <ATen/Functions.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

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
  } catch (...) {  // of a device that is lost: the next call says so
  }
}

void DeviceStep::take(const kernels::MultiTensorLists& lists, std::span<const double> own) {
  const c10::InferenceMode normal(false);  // what is made now is written to in later steps
  host_steps_ = lists.step;
  steps_there_.clear();
  const auto tensors = static_cast<Index>(host_steps_.size());
  device_steps_ = at::empty({tensors}, at::TensorOptions(at::kLong).device(device_));
  own_.assign(own.begin(), own.end());
  has_stepped_ = false;
  device_own_ = own.empty() ? at::Tensor() : upload(own, at::kDouble, device_);
  follow(lists);
}

void DeviceStep::follow(const kernels::MultiTensorLists& lists) {
  lists_ = lists;
  lists_.step = {device_steps_.data_ptr<std::int64_t>(), host_steps_.size()};
  lists_changed_ = true;
}

// Counters that somebody set.
void DeviceStep::begin() {
  if (std::equal(host_steps_.begin(), host_steps_.end(), steps_there_.begin(),
                 steps_there_.end())) {
    return;
  }
  steps_there_.assign(host_steps_.begin(), host_steps_.end());
  device_steps_.copy_(upload(std::span<const Index>(steps_there_), at::kLong, device_));
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
  return all.size() <= 1 ? all : all.subspan(tensor, 1);
}

std::span<const Index> DeviceStep::steps() {
  if (has_stepped_ && !steps_there_.empty()) {
    const at::Tensor host = device_steps_.to(at::kCPU);
    std::copy_n(host.data_ptr<std::int64_t>(), steps_there_.size(), steps_there_.begin());
  }
  return steps_there_;
}

}  // namespace hone::optim
