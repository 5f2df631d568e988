// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/sampling/gumbel.h"

#include <cmath>

#include "hone/core/check.h"
#include "hone/core/philox.h"
#include "hone/core/portable_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/sampling/gumbel.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/sampling/gumbel-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(gumbel_argmax_row);

double gumbel_noise(const GumbelKey& key, Index token) {
  const auto word = static_cast<std::size_t>(token / kNoiseLanes % 4);
  const PhiloxBlock high = philox(key.seed, noise_counter(key, noise_block(token)));
  const PhiloxBlock low = philox(key.seed, refining_counter(key, token));
  return -portable_log(-portable_log(1 - open_unit_double(high[word], low[0])));
}

Index gumbel_argmax(const GumbelArgmaxArgs& args) {
  HONE_CHECK(args.count >= 0 && args.count <= Index{1} << 31, "gumbel_argmax", "0 to 2^31 logits",
             args.count);
  HONE_CHECK(std::isfinite(args.highest), "gumbel_argmax", "a finite largest logit", args.highest);
  HONE_CHECK(args.temperature > 0 && std::isfinite(args.temperature), "gumbel_argmax",
             "a positive finite temperature", args.temperature);
  return HWY_DYNAMIC_DISPATCH(gumbel_argmax_row)(args);
}

}  // namespace hone::kernels
#endif
