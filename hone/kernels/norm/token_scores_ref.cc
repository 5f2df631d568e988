// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/kernels/norm/log_sum_exp.h"
#include "hone/kernels/norm/token_scores.h"

namespace hone::kernels {
namespace {

double log_sum_of(const float* logits, Index vocab) {
  const double total = log_sum_exp_ref(logits, vocab);
  return std::isfinite(total) ? total : std::numeric_limits<double>::quiet_NaN();
}

Index top_of(const float* logits, Index vocab) {
  return std::max_element(logits, logits + vocab) - logits;
}

}  // namespace

void score_tokens_ref(const TokenScoreArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    const float* logits = args.logits + row * args.vocab;
    args.log_probabilities[row] = logits[args.targets[row]] - log_sum_of(logits, args.vocab);
  }
}

void compare_tokens_ref(const TokenPairArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    const float* model = args.logits + row * args.vocab;
    const float* base = args.baseline + row * args.vocab;
    const double model_total = log_sum_of(model, args.vocab);
    const double base_total = log_sum_of(base, args.vocab);
    TokenPair& pair = args.pairs[row];
    pair.log_probability = model[args.targets[row]] - model_total;
    pair.baseline_log_probability = base[args.targets[row]] - base_total;
    const bool are_distributions = !std::isnan(model_total) && !std::isnan(base_total);
    pair.kl = are_distributions ? 0 : std::numeric_limits<double>::quiet_NaN();
    for (Index i = 0; are_distributions && i < args.vocab; ++i) {
      const double p = std::exp(base[i] - base_total);
      if (p > 0) pair.kl += p * ((base[i] - base_total) - (model[i] - model_total));
    }
    pair.same_top = are_distributions && top_of(model, args.vocab) == top_of(base, args.vocab);
  }
}

}  // namespace hone::kernels
