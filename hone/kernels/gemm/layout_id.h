// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace hone::kernels {

// Names the order of the bytes in packed matrices, for whoever keeps them on disk: a hash over
// small matrices of every stored format, packed. It therefore changes with pack() and
// pack_gate_up(), whatever changes them.
const std::string& packed_layout_id();

}  // namespace hone::kernels
