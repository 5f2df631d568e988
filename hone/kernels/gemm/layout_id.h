// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace hone::kernels {

// Identifies the byte order of packed matrices, for callers that keep them on disk. It is a hash
// over small packed matrices of every stored format, so it changes whenever the results of pack()
// and pack_gate_up() change.
const std::string& packed_layout_id();

}  // namespace hone::kernels
