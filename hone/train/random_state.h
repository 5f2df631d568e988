// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace hone {

// The states of LibTorch's default generators: of the CPU, and of `device` or the CUDA devices of
// some tensors.
class RandomState {
 public:
  explicit RandomState(const std::vector<at::Tensor>& tensors = {});
  explicit RandomState(c10::Device device);
  void restore() const;

 private:
  void save(at::Generator generator);
  std::vector<std::pair<at::Generator, at::Tensor>> saved_;
};

}  // namespace hone
