// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/roof/roof.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/roof/roof.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/roof/roof-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(xor_range);
HWY_EXPORT(copy_range);
HWY_EXPORT(increment_range);
HWY_EXPORT(fma_chains);

std::uint64_t xor_words(const std::uint64_t* words, Index count) {
  return HWY_DYNAMIC_DISPATCH(xor_range)(words, count);
}

void stream_copy(const std::uint64_t* from, std::uint64_t* to, Index count) {
  HWY_DYNAMIC_DISPATCH(copy_range)(from, to, count);
}

void increment_words(std::uint64_t* words, Index count) {
  HWY_DYNAMIC_DISPATCH(increment_range)(words, count);
}

FmaWork run_fma_chains(Index rounds) { return HWY_DYNAMIC_DISPATCH(fma_chains)(rounds); }

}  // namespace hone::kernels
#endif
