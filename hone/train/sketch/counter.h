// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace hone::nn {

// A count in a module's buffer, as four bytes: to() of a module converts its buffers to its type,
// in which bytes are exact whatever the type is.
torch::Tensor new_counter();
std::uint32_t counted(const torch::Tensor& counter);
void set_counter(torch::Tensor& counter, std::uint32_t count);

}  // namespace hone::nn
