// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace hone {

// The states of LibTorch's default generators: the CPU's, and those of the CUDA devices that some
// tensors are on, or of `device`.
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
