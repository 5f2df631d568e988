// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "hone/kernels/sampling/gumbel.h"
#include "hone/kernels/sampling/gumbel_counter.h"

namespace hone::kernels {

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
