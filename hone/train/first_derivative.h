// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace hone {

// Throws Error{Unsupported} naming `op` in a backward pass with create_graph. Backward passes that
// run kernels call it, because autograd cannot differentiate their results again.
void refuse_second_derivative(std::string_view op);

}  // namespace hone
