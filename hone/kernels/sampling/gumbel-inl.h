// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see gumbel.cc.
#if defined(HONE_KERNELS_SAMPLING_GUMBEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_SAMPLING_GUMBEL_INL_H_
#undef HONE_KERNELS_SAMPLING_GUMBEL_INL_H_
#else
#define HONE_KERNELS_SAMPLING_GUMBEL_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/kernels/philox-inl.h"
#include "hone/kernels/sampling/gumbel.h"
#include "hone/kernels/sampling/gumbel_counter.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The best token so far, and the bound that a token must reach to be compared with it.
class GumbelRace {
 public:
  explicit GumbelRace(const GumbelArgmaxArgs& args) : args_(args) {}

  float needed() const { return needed_; }
  Index winner() const { return winner_; }
  // Tokens must come in ascending order.
  void consider(Index token) {
    const float logit = args_.logits[token];
    if (std::isinf(logit) || !args_.cut.keeps(logit, token)) return;
    const double score = scaled_logit(args_, logit) + gumbel_noise(args_.key, token);
    if (winner_ >= 0 && score <= best_) return;
    best_ = score;
    winner_ = token;
    needed_ = static_cast<float>(best_ - 1e-4 - 1e-6 * std::abs(best_));
  }

 private:
  const GumbelArgmaxArgs& args_;
  double best_ = 0;
  Index winner_ = -1;
  float needed_ = -std::numeric_limits<float>::infinity();
};

// Upper bounds on the scores of 64 tokens. With the high 24 bits y of the noise, E = -log(1 - x) >=
// x >= y / 2^24, thus G <= 24 log 2 - log y. log2 of a float is at least its bits as an integer /
// 2^23 - 127.
class ScoreBounds {
 public:
  explicit ScoreBounds(const GumbelArgmaxArgs& args)
      : key_(args.key),
        highest_(args.highest),
        temperature_(args.temperature),
        least_(args.cut.least) {}

  // Returns true if one of these tokens could reach `needed` with the largest possible noise.
  HWY_INLINE bool may_win(const float* logits, float needed) const {
    const hn::CappedTag<float, kNoiseLanes> d;
    const auto lanes = static_cast<Index>(hn::Lanes(d));
    auto top = hn::LoadU(d, logits);
    for (Index i = lanes; i < kNoiseTokens; i += lanes) {
      top = hn::Max(top, hn::LoadU(d, logits + i));
    }
    constexpr float kLargestNoise = 37;  // -log(2^-53) = 36.74
    const auto bound = hn::Add(scaled_from_above(d, top), hn::Set(d, kLargestNoise));
    const auto is_possible = hn::And(hn::Ge(bound, hn::Set(d, needed)), is_kept(d, top));
    return !hn::AllFalse(d, is_possible);
  }

  // Writes the bounds of tokens first … first + 63: -infinity for tokens that the cut surely drops.
  // Returns true if one of them reaches `needed`.
  HWY_INLINE bool compute(const float* logits, Index first, float needed,
                          float* HWY_RESTRICT bounds) const {
    const hn::CappedTag<float, kNoiseLanes> d;
    const hn::RebindToSigned<decltype(d)> di;
    const hn::RebindToUnsigned<decltype(d)> du;
    const auto lanes = static_cast<Index>(hn::Lanes(d));
    PhiloxWords<kNoiseLanes> drawn;
    draw_blocks(key_.seed, noise_counter(key_, noise_block(first)), kNoiseLanes, drawn);
    constexpr float kLog2 = 0.693147181f;
    const auto slope = hn::Set(d, kLog2 * 0x1p-23f);
    const auto offset = hn::Set(d, (127 + 24) * kLog2 + 1e-4f);
    const auto wanted = hn::Set(d, needed);
    auto any = hn::FirstN(d, 0);
    for (Index i = 0; i < kNoiseTokens; i += lanes) {
      const auto word = hn::LoadU(du, drawn.words[i / kNoiseLanes] + i % kNoiseLanes);
      const auto y = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<8>(word)));
      const auto log_y = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, y)), slope);
      const auto x = hn::LoadU(d, logits + i);
      const auto bound = hn::Add(scaled_from_above(d, x), hn::Sub(offset, log_y));
      const auto reaches = hn::And(hn::Ge(bound, wanted), is_kept(d, x));
      hn::StoreU(hn::IfThenElse(is_kept(d, x), bound, hn::Set(d, kLowest)), d, bounds + i);
      any = hn::Or(any, reaches);
    }
    return !hn::AllFalse(d, any);
  }

 private:
  static constexpr float kLowest = -std::numeric_limits<float>::infinity();

  template <class D>
  HWY_INLINE hn::Mask<D> is_kept(D d, hn::Vec<D> logits) const {
    return hn::Ge(logits, hn::Set(d, least_));
  }
  // (logit - highest) / temperature, rounded up: the quotient is at most 0 and has a relative error
  // below 2^-22.
  template <class D>
  HWY_INLINE hn::Vec<D> scaled_from_above(D d, hn::Vec<D> logits) const {
    const auto quotient = hn::Div(hn::Sub(logits, hn::Set(d, highest_)), hn::Set(d, temperature_));
    return hn::Mul(quotient, hn::Set(d, 1 - 0x1p-20f));
  }

  const GumbelKey& key_;
  float highest_, temperature_, least_;
};

Index gumbel_argmax_row(const GumbelArgmaxArgs& args) {
  const ScoreBounds screen(args);
  GumbelRace race(args);
  HWY_ALIGN float bounds[kNoiseTokens];
  HWY_ALIGN float padded[kNoiseTokens];
  for (Index first = 0; first < args.count; first += kNoiseTokens) {
    const float* logits = args.logits + first;
    const Index tokens = std::min(kNoiseTokens, args.count - first);
    if (tokens < kNoiseTokens) {
      std::fill_n(padded, kNoiseTokens, -std::numeric_limits<float>::infinity());
      std::copy_n(logits, tokens, padded);
      logits = padded;
    }
    if (!screen.may_win(logits, race.needed())) continue;
    if (!screen.compute(logits, first, race.needed(), bounds)) continue;
    for (Index i = 0; i < tokens; ++i) {
      if (bounds[i] >= race.needed()) race.consider(first + i);
    }
  }
  return race.winner();
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
