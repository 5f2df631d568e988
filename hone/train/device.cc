// SPDX-License-Identifier: Apache-2.0
#include "hone/train/device.h"

#include <ATen/Functions.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <charconv>
#include <system_error>

#include "hone/core/check.h"
#include "hone/kernels/cuda/device_info.h"

namespace hone {

c10::Device parse_device(std::string_view key, std::string_view name) {
  constexpr std::string_view kCuda = "cuda";
  constexpr int kMostDevices = 64;  // of LibTorch
  if (name == "cpu") return c10::Device(c10::kCPU);
  int index = 0;
  bool is_known = name == kCuda;
  if (name.starts_with("cuda:")) {
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + kCuda.size() + 1, end, index);
    is_known = read.ec == std::errc() && read.ptr == end && index >= 0 && index < kMostDevices;
  }
  HONE_CHECK(is_known, key, "cpu, cuda or cuda:N", name);
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

void select_device(std::string_view key, c10::Device device) {
  if (device.is_cpu()) return;
  if (!c10::impl::hasDeviceGuardImpl(device.type())) {
    fail_unsupported(key, "a CUDA device", "a LibTorch without CUDA");
  }
  const auto& backend = *c10::impl::getDeviceGuardImpl(device.type());
  const int count = backend.deviceCount();
  if (device.index() >= count) {
    fail_unsupported(key, concat("a CUDA device, ", device.str()),
                     concat("a machine on which LibTorch finds ", count));
  }
  if (const kernels::CudaInfo info = kernels::query_cuda(); !info.is_built) {
    fail_unsupported(key, "hone's CUDA kernels, for its optimizers", info.reason);
  }
  backend.setDevice(device);
}

at::TensorOptions host_options(at::ScalarType type, c10::Device device) {
  return at::TensorOptions(type).pinned_memory(device.is_cuda());
}

at::Tensor send(const at::Tensor& host, c10::Device device) {
  if (device.is_cpu()) return host;
  return (device.is_cuda() ? host.pin_memory() : host).to(device, /*non_blocking=*/true);
}

void synchronize(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::getDeviceGuardImpl(device.type())->synchronizeDevice(device.index());
}

}  // namespace hone
