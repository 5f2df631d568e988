// SPDX-License-Identifier: Apache-2.0
#include "hone/train/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>
#include <set>

namespace hone {

RandomState::RandomState(const std::vector<at::Tensor>& tensors) {
  save(at::detail::getDefaultCPUGenerator());
  std::set<c10::DeviceIndex> devices;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.is_cuda()) continue;
    if (!devices.insert(tensor.device().index()).second) continue;
    save(at::globalContext().defaultGenerator(tensor.device()));
  }
}

RandomState::RandomState(c10::Device device) {
  save(at::detail::getDefaultCPUGenerator());
  if (device.is_cuda()) save(at::globalContext().defaultGenerator(device));
}

void RandomState::save(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  saved_.emplace_back(std::move(generator), state);
}

void RandomState::restore() const {
  for (const auto& [generator, state] : saved_) {
    at::Generator writable = generator;
    const std::lock_guard lock(writable.mutex());
    writable.set_state(state);
  }
}

}  // namespace hone
