// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "hone/core/philox.h"
#include "hone/core/portable_math.h"
#include "hone/kernels/sampling/gumbel.h"
#include "hone/kernels/sampling/gumbel_counter.h"

namespace hone::kernels {

double gumbel_noise(const GumbelKey& key, Index token) {
  const auto word = static_cast<std::size_t>(token / kNoiseLanes % 4);
  const PhiloxBlock high = philox(key.seed, noise_counter(key, noise_block(token)));
  const PhiloxBlock low = philox(key.seed, refining_counter(key, token));
  return -portable_log(-portable_log(1 - open_unit_double(high[word], low[0])));
}

Index gumbel_argmax_ref(const GumbelArgmaxArgs& args) {
  Index winner = -1;
  double best = 0;
  for (Index i = 0; i < args.count; ++i) {
    const float logit = args.logits[i];
    if (std::isinf(logit) || !args.cut.keeps(logit, i)) continue;
    const double score = scaled_logit(args, logit) + gumbel_noise(args.key, i);
    if (winner >= 0 && score <= best) continue;
    best = score;
    winner = i;
  }
  return winner;
}

}  // namespace hone::kernels
