// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hone/kernels/multi_tensor/cuda/work_list.h"

namespace hone::kernels {

// How the addresses of a list of tensors reach a kernel (docs/cuda.md).
enum class Transport {
  Auto,         // a struct if the whole list fits into one, else the table
  StructSmall,  // by value, at most 4096 bytes a launch
  StructLarge,  // by value, at most 32,764 bytes a launch
  DeviceTable,  // in device memory, kept there until a tensor moves
};

std::string_view name_of(Transport transport);  // "auto", "struct_small", "struct_large", "table"
// Error{InvalidArgument} naming the choices.
Transport parse_transport(std::string_view name);
// HONE_FORCE_KERNEL=multi_tensor:struct_small|struct_large|table, else `wanted`. "ref", which
// chooses a CPU variant, changes nothing.
Transport forced_transport(Transport wanted);

namespace cuda {

struct TransportSupport {
  int driver_version = 0;      // 12010 = 12.1
  int compute_capability = 0;  // 90 = 9.0
};
// Error{Unsupported} when StructLarge is asked for and driver or device cannot.
Transport choose_transport(Transport wanted, const WorkList& list, int depth,
                           const TransportSupport& support);

// Launches that a pass over the whole list takes.
Index count_launches(Transport transport, const WorkList& list, int depth);
// Error{InvalidArgument} naming the capacity when that is more than `most`; 0: no limit.
void check_launches(Transport transport, const WorkList& list, int depth, Index most);

}  // namespace cuda
}  // namespace hone::kernels
