// SPDX-License-Identifier: Apache-2.0
#include "hone/train/relative_error.h"

#include <ATen/ATen.h>

#include "hone/core/check.h"

namespace hone {

double relative_error(const at::Tensor& got, const at::Tensor& want) {
  HONE_CHECK(got.sizes().equals(want.sizes()), "relative_error",
             concat("a tensor of shape ", c10::str(want.sizes())), c10::str(got.sizes()));
  const at::Tensor exact = want.detach().to(at::kDouble);
  const double size = exact.norm().item<double>();
  const double error = (got.detach().to(at::kDouble) - exact).norm().item<double>();
  return size == 0 ? error : error / size;
}

}  // namespace hone
