// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/cuda/transport.h"

#include <array>

#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "multi_tensor transport";
constexpr std::array<std::string_view, 4> kNames{"auto", "struct_small", "struct_large", "table"};

}  // namespace

std::string_view name_of(Transport transport) {
  return kNames[static_cast<std::size_t>(transport)];
}

Transport parse_transport(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Transport>(i);
  }
  fail_argument(kOp, "auto, struct_small, struct_large or table", name);
}

Transport forced_transport(Transport wanted) {
  const std::string forced = forced_kernel("multi_tensor");
  return forced.empty() || forced == "ref" ? wanted : parse_transport(forced);
}

namespace cuda {
namespace {

int scale_of(Transport transport) { return transport == Transport::StructLarge ? kLargeScale : 1; }

bool fits_one_struct(Transport transport, const WorkList& list, int depth) {
  return count_launches(transport, list, depth) <= 1;
}

}  // namespace

Transport choose_transport(Transport wanted, const WorkList& list, int depth,
                           const TransportSupport& support) {
  const bool large = support.driver_version >= 12010 && support.compute_capability >= 70;
  if (wanted == Transport::StructLarge && !large) {
    fail_unsupported(
        kOp, "driver 530 (CUDA 12.1) and compute capability 7.0 for struct_large",
        concat("CUDA ", support.driver_version / 1000, ".", support.driver_version % 1000 / 10,
               " and ", support.compute_capability / 10, ".", support.compute_capability % 10));
  }
  if (wanted != Transport::Auto) return wanted;
  if (fits_one_struct(Transport::StructSmall, list, depth)) return Transport::StructSmall;
  if (large && fits_one_struct(Transport::StructLarge, list, depth)) return Transport::StructLarge;
  return Transport::DeviceTable;
}

Index count_launches(Transport transport, const WorkList& list, int depth) {
  if (transport == Transport::DeviceTable) return list.blocks() > 0 ? 1 : 0;
  const int scale = scale_of(transport);
  const auto ranges = list.split(scale * small_tensors(depth), scale * kSmallBlocks);
  return static_cast<Index>(ranges.size());
}

void check_launches(Transport transport, const WorkList& list, int depth, Index most) {
  if (most <= 0) return;
  const Index launches = count_launches(transport, list, depth);
  if (launches <= most) return;
  const int scale = scale_of(transport);
  fail_argument(
      kOp,
      concat("at most ", most, " launches of ", name_of(transport), " (",
             scale * small_tensors(depth), " tensors and ", scale * kSmallBlocks, " blocks each)"),
      concat(launches, " for ", list.tensors(), " tensors in ", list.blocks(), " blocks"));
}

}  // namespace cuda
}  // namespace hone::kernels
