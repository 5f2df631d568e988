// SPDX-License-Identifier: Apache-2.0
#include "hone/train/first_derivative.h"

#include <ATen/core/grad_mode.h>

#include "hone/core/check.h"

namespace hone {

void refuse_second_derivative(std::string_view op) {
  if (at::GradMode::is_enabled()) {
    fail_unsupported(op, "first derivatives", "a backward pass with create_graph");
  }
}

}  // namespace hone
