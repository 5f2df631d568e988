// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hone/kernels/multi_tensor/cuda/work_list.h"

namespace hone::kernels {

// How the addresses of a list of tensors reach a kernel (docs/cuda.md).
enum class Transport {
  Auto,         // a struct if the whole list fits into one, otherwise the table
  StructSmall,  // by value, at most 4096 bytes per launch
  StructLarge,  // by value, at most 32,764 bytes per launch
  DeviceTable,  // in device memory, kept there until a tensor moves
};

std::string_view name_of(Transport transport);  // "auto", "struct_small", "struct_large", "table"
// Throws Error{InvalidArgument} that names the choices.
Transport parse_transport(std::string_view name);
// Returns the transport of HONE_FORCE_KERNEL=multi_tensor:struct_small|struct_large|table,
// otherwise `wanted`. "ref", which chooses a CPU variant, has no effect.
Transport forced_transport(Transport wanted);

namespace cuda {

struct TransportSupport {
  int driver_version = 0;      // 12010 = 12.1
  int compute_capability = 0;  // 90 = 9.0
};
// Throws Error{Unsupported} if StructLarge is requested and the driver or device does not support
// it.
Transport choose_transport(Transport wanted, const WorkList& list, int depth,
                           const TransportSupport& support);

// Returns the number of launches of a pass over the whole list.
Index count_launches(Transport transport, const WorkList& list, int depth);
// Throws Error{InvalidArgument} that names the capacity if there are more than `most`; 0: no limit.
void check_launches(Transport transport, const WorkList& list, int depth, Index most);

}  // namespace cuda
}  // namespace hone::kernels
