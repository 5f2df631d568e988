// SPDX-License-Identifier: Apache-2.0
#include "hone/train/amp/autocast_guard.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DeviceType.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <map>
#include <mutex>

#include "hone/core/check.h"
#include "hone/core/text_format.h"

namespace hone::amp {
namespace {

std::string name_of(c10::DeviceType device) { return c10::DeviceTypeName(device, true); }

bool is_present(c10::DeviceType device) {
  if (device == c10::DeviceType::CPU) return true;
  const auto* backend = c10::impl::device_guard_impl_registry[static_cast<int>(device)].load();
  return backend != nullptr && backend->deviceCount() > 0;
}

// Empty when the device multiplies in that type.
std::string try_product(c10::DeviceType device, at::ScalarType dtype) {
  if (!is_present(device)) return concat("no ", name_of(device), " device");
  try {
    const c10::NoGradGuard no_grad;
    const at::Tensor ones = at::ones({2, 2}, at::TensorOptions(device).dtype(dtype));
    if (at::mm(ones, ones).sum().item<double>() == 8) return {};
    return concat(name_of(device), " gives wrong products in ", at::toString(dtype));
  } catch (const std::exception& error) {
    const std::string message = error.what();
    return concat(name_of(device), " cannot multiply in ", at::toString(dtype), ": ",
                  message.substr(0, message.find('\n')));
  }
}

std::string why_not(c10::DeviceType device, at::ScalarType dtype) {
  if (!at::autocast::is_autocast_available(device)) {
    return concat(name_of(device), " has no autocast");
  }
  if (dtype != at::kBFloat16 && dtype != at::kHalf) {
    return concat("autocast runs in BFloat16 or Half, not in ", at::toString(dtype));
  }
  static std::mutex mutex;
  static std::map<std::pair<c10::DeviceType, at::ScalarType>, std::string> known;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace({device, dtype});
  if (is_new) entry->second = try_product(device, dtype);
  return entry->second;
}

}  // namespace

std::string AutocastReport::describe() const {
  return active ? concat(name_of(device), " ", at::toString(dtype)) : concat("inactive: ", reason);
}

AutocastReport probe_autocast(c10::DeviceType device, at::ScalarType dtype) {
  AutocastReport report{false, device, at::kFloat, why_not(device, dtype)};
  report.active = report.reason.empty();
  if (report.active) report.dtype = dtype;
  return report;
}

AutocastGuard::AutocastGuard(c10::DeviceType device, at::ScalarType dtype, bool enabled)
    : report_{false, device, at::kFloat, "not requested"},
      has_autocast_(at::autocast::is_autocast_available(device)) {
  if (enabled) report_ = probe_autocast(device, dtype);
  if (!has_autocast_) return;
  previous_enabled_ = at::autocast::is_autocast_enabled(device);
  previous_dtype_ = at::autocast::get_autocast_dtype(device);
  at::autocast::set_autocast_enabled(device, report_.active);
  if (report_.active) at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (!has_autocast_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(report_.device, previous_enabled_);
  at::autocast::set_autocast_dtype(report_.device, previous_dtype_);
}

PrecisionChoice choose_precision(const std::function<void()>& forward, c10::DeviceType device,
                                 Measurer& measurer, const MeasureOptions& options) {
  const AutocastReport report = probe_autocast(device, at::kBFloat16);
  if (!report.active) return {false, {}, concat("fp32: ", report.reason)};
  const auto finish = [device] {
    if (device == c10::DeviceType::CPU) return;
    const auto* backend = c10::impl::getDeviceGuardImpl(device);
    backend->synchronizeDevice(backend->getDevice().index());
  };
  const auto run_in = [&](bool bf16) {
    return [&forward, finish, device, bf16] {
      const AutocastGuard guard(device, at::kBFloat16, bf16);
      forward();
      finish();
    };
  };
  const std::array<Contestant, 2> both{Contestant{"fp32", run_in(false)},
                                       Contestant{"bf16", run_in(true)}};
  const Measurement measurement = measurer.measure(both, options);
  PrecisionChoice choice{false, measurer.speedup(measurement, 1, 0), {}};
  choice.use_bf16 = choice.speedup.low > 1;
  choice.reason = concat(choice.use_bf16 ? "bf16" : "fp32", ": bf16 runs the forward at ",
                         fixed(choice.speedup.ratio, 2), " of fp32's speed (",
                         fixed(choice.speedup.low, 2), " to ", fixed(choice.speedup.high, 2), ")");
  return choice;
}

}  // namespace hone::amp
