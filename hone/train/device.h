// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string_view>

namespace hone {

// The device that a setting names: "cpu", "cuda" (cuda:0) or "cuda:N". Throws
// Error{InvalidArgument} that names `key` for anything else. Does not look for the device.
c10::Device parse_device(std::string_view key, std::string_view name);

// Makes a device that parse_device() has returned this thread's current one. Throws
// Error{Unsupported} that names `key` if it is a CUDA device and LibTorch has no CUDA or finds no
// such device, or if hone was built without CUDA kernels, which its optimizers need there.
void select_device(std::string_view key, c10::Device device);

// For host tensors whose copies to `device` shall not stop the host: pinned memory where the device
// copies from that.
at::TensorOptions host_options(at::ScalarType type, c10::Device device);

// A CPU tensor's copy on `device`, which the host does not wait for; the tensor itself if that is
// the CPU. Copies to pinned memory first unless the tensor lies there (host_options).
at::Tensor send(const at::Tensor& host, c10::Device device);

}  // namespace hone
