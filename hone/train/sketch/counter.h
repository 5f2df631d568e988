// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "hone/train/sketch/sketch_signs.h"

namespace hone::nn {

// A count in a buffer of a module, as four bytes. to() of a module converts buffers to its type, in
// which values of bytes are exact for every type.
torch::Tensor new_counter();
std::uint32_t counted(const torch::Tensor& counter);
void set_counter(torch::Tensor& counter, std::uint32_t count);

// Base class of modules with counters. Conversions of the module or of its parent keep buffers of
// bytes unchanged.
template <class Impl>
class CountedModule : public torch::nn::Cloneable<Impl> {
 public:
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override {
    convert([&] { torch::nn::Module::to(device, dtype, non_blocking); });
  }
  void to(torch::Dtype dtype, bool non_blocking = false) override {
    convert([&] { torch::nn::Module::to(dtype, non_blocking); });
  }
  void to(torch::Device device, bool non_blocking = false) override {
    torch::nn::Module::to(device, non_blocking);
  }

 private:
  template <class Change>
  void convert(const Change& change) {
    std::vector<torch::Tensor> bytes;
    for (const auto& item : this->named_buffers(/*recurse=*/false)) {
      if (item.value().scalar_type() == at::kByte) bytes.push_back(item.value());
    }
    change();
    for (torch::Tensor& buffer : bytes) restore_bytes(buffer);
  }
};

}  // namespace hone::nn
