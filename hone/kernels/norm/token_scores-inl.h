// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see token_scores.cc.
#if defined(HONE_KERNELS_NORM_TOKEN_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_NORM_TOKEN_SCORES_INL_H_
#undef HONE_KERNELS_NORM_TOKEN_SCORES_INL_H_
#else
#define HONE_KERNELS_NORM_TOKEN_SCORES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/kernels/norm/exp_sum-inl.h"
#include "hone/kernels/norm/token_scores.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

// Returns the largest logit of a row; NaN if the row is not a distribution.
HWY_INLINE double top_of_row(const float* x, Index cols) {
  bool has_nan = false;
  const float highest = max_of_row(x, cols, has_nan);
  const bool is_distribution = !has_nan && std::isfinite(highest);
  return is_distribution ? highest : std::numeric_limits<double>::quiet_NaN();
}

// Returns the index of the first element that equals `value`, which must occur.
HWY_INLINE Index first_of_row(const float* x, Index cols, float value) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto wanted = hn::Set(d, value);
  Index i = 0;
  while (i + lanes <= cols && hn::AllFalse(d, hn::Eq(hn::LoadU(d, x + i), wanted))) i += lanes;
  return std::find(x + i, x + cols, value) - x;
}

struct WeightedSums {
  double weights = 0;      // sum_of_exp() of the baseline, with the same bits
  double differences = 0;  // sum_i exp(base[i] - top) (base[i] - model[i]), without weights of 0
};

HWY_INLINE WeightedSums weigh_differences(const float* base, double top, const float* model,
                                          Index cols) {
  const WideTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto tops = hn::Set(d, top), zero = hn::Zero(d);
  auto weights = zero, differences = zero;
  Index i = 0;
  for (; i + lanes <= cols; i += lanes) {
    const auto b = load_wide(base + i);
    const auto weight = hn::Exp(d, hn::Sub(b, tops));
    const auto part = hn::Mul(weight, hn::Sub(b, load_wide(model + i)));
    weights = hn::Add(weights, weight);
    differences = hn::Add(differences, hn::IfThenElseZero(hn::Gt(weight, zero), part));
  }
  WeightedSums sums{hn::GetLane(hn::SumOfLanes(d, weights)),
                    hn::GetLane(hn::SumOfLanes(d, differences))};
  for (; i < cols; ++i) {
    const double b = base[i], weight = std::exp(b - top);
    sums.weights += weight;
    sums.differences += weight > 0 ? weight * (b - model[i]) : 0;
  }
  return sums;
}

void score_token_rows(const TokenScoreArgs& args, Index begin, Index end) {
  for (Index row = begin; row < end; ++row) {
    const float* x = args.logits + row * args.vocab;
    const double top = top_of_row(x, args.vocab);
    const double log_sum = top + std::log(sum_of_exp(x, top, args.vocab));
    args.log_probabilities[row] = x[args.targets[row]] - log_sum;
  }
}

// KL = sum_i p_i (b_i - m_i) - (lse(b) - lse(m)), where p = softmax(b); exactly 0 for equal rows.
TokenPair compare_row(const float* model, const float* base, Index vocab, Index target) {
  const double model_top = top_of_row(model, vocab), base_top = top_of_row(base, vocab);
  const WeightedSums sums = weigh_differences(base, base_top, model, vocab);
  const double model_lse = model_top + std::log(sum_of_exp(model, model_top, vocab));
  const double base_lse = base_top + std::log(sums.weights);
  TokenPair pair{.log_probability = model[target] - model_lse,
                 .baseline_log_probability = base[target] - base_lse,
                 .kl = sums.differences / sums.weights - (base_lse - model_lse)};
  if (pair.kl < 0) pair.kl = 0;  // keeps a NaN
  if (std::isnan(model_top) || std::isnan(base_top)) return pair;
  pair.same_top = first_of_row(model, vocab, static_cast<float>(model_top)) ==
                  first_of_row(base, vocab, static_cast<float>(base_top));
  return pair;
}

void compare_token_rows(const TokenPairArgs& args, Index begin, Index end) {
  for (Index row = begin; row < end; ++row) {
    const Index at = row * args.vocab;
    args.pairs[row] =
        compare_row(args.logits + at, args.baseline + at, args.vocab, args.targets[row]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
