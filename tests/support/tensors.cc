// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace hone::test {

Tensors copies(const Tensors& tensors) {
  Tensors out;
  for (const at::Tensor& tensor : tensors) out.push_back(tensor.detach().clone());
  return out;
}

bool equal(const Tensors& a, const Tensors& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return x.equal(y); });
}

double worst_difference(const Tensors& a, const Tensors& b) {
  double worst = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const at::Tensor scale = b[i].detach().abs().clamp_min(1);
    const double error = ((a[i] - b[i]).detach().abs() / scale).max().item<double>();
    if (std::isnan(error)) return error;
    worst = std::max(worst, error);
  }
  return worst;
}

}  // namespace hone::test
