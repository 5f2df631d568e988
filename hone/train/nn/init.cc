// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/init.h"

#include <cmath>
#include <numbers>

#include "hone/core/index.h"
#include "hone/core/philox.h"

namespace hone::nn {

void fill_normal(const torch::Tensor& tensor, double std, std::uint64_t seed,
                 std::uint64_t stream) {
  PhiloxStream random(seed, stream);
  float* data = tensor.data_ptr<float>();
  for (Index i = 0; i < tensor.numel(); i += 2) {
    const double radius = std * std::sqrt(-2.0 * std::log(random.uniform_double()));
    const double angle = 2.0 * std::numbers::pi * random.uniform_double();
    data[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < tensor.numel()) data[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

}  // namespace hone::nn
