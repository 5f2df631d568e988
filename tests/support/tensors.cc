// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "tests/support/largest_error.h"

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
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  LargestError worst;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const at::Tensor scale = b[i].detach().abs().clamp_min(1);
    worst.add(((a[i] - b[i]).detach().abs() / scale).max().item<double>(), 0);
  }
  return worst.error;
}

double relative_error(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor wanted = want.to(at::kDouble);
  return ((got.to(at::kDouble) - wanted).abs().max() / wanted.abs().max()).item<double>();
}

}  // namespace hone::test
