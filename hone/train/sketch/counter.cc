// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/counter.h"

#include <ATen/ATen.h>

#include <cstring>

namespace hone::nn {

torch::Tensor new_counter() { return at::zeros({sizeof(std::uint32_t)}, at::kByte); }

std::uint32_t counted(const torch::Tensor& counter) {
  const torch::Tensor bytes = counter.to(at::kCPU, at::kByte).contiguous();
  std::uint32_t count = 0;
  std::memcpy(&count, bytes.const_data_ptr(), sizeof count);
  return count;
}

void set_counter(torch::Tensor& counter, std::uint32_t count) {
  const torch::Tensor bytes = new_counter();
  std::memcpy(bytes.mutable_data_ptr(), &count, sizeof count);
  counter.copy_(bytes);
}

}  // namespace hone::nn
