// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string_view>

namespace hone {

// Returns the device that a setting names: "cpu", "cuda" (cuda:0) or "cuda:N". Throws
// Error{InvalidArgument} that names `key` for anything else. Does not check that the device exists.
c10::Device parse_device(std::string_view key, std::string_view name);

// Makes a device that parse_device() returned the current one of this thread. For a CUDA device,
// throws Error{Unsupported} that names `key` if LibTorch has no CUDA or does not find the device.
// Also throws it if hone was built without the CUDA kernels that its optimizers need.
void select_device(std::string_view key, c10::Device device);

// Waits until the device has done all of its work.
void synchronize(c10::Device device);

// Options for host tensors that are copied to `device` without blocking the host: pinned memory if
// the device can copy from it.
at::TensorOptions host_options(at::ScalarType type, c10::Device device);

// Returns a copy of a CPU tensor on `device` without waiting for it, or the tensor itself if
// `device` is the CPU. First copies to pinned memory unless the tensor is already pinned
// (host_options).
at::Tensor send(const at::Tensor& host, c10::Device device);

}  // namespace hone
