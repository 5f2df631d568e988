// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace hone {

// For backward passes that run kernels, whose results autograd cannot differentiate again. Throws
// Error{Unsupported} naming `op` in a backward pass with create_graph.
void refuse_second_derivative(std::string_view op);

}  // namespace hone
