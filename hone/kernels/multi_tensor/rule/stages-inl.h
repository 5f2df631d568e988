// SPDX-License-Identifier: Apache-2.0
// The stages from which element-wise rules are composed at compile time, and hone's own rules. One
// source for Highway's vectors and CUDA's threads: include rule_ops-inl.h or scalar_ops.h first.
#if defined(HONE_STAGES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_STAGES_INL_H_
#undef HONE_STAGES_INL_H_
#else
#define HONE_STAGES_INL_H_
#endif

#include "hone/kernels/multi_tensor/rule/rule_ops-inl.h"

HONE_RULE_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HONE_RULE_NAMESPACE {

// Operands of a stage: the scalars `s` of the tensor's step, by name, and one vector or number each
// of p, g, m, v, x, u and w. p is the parameter and g the scaled gradient. m, v and x are the slots
// momentum, second_moment and extra. u is the update so far (initially g); the root of w divides
// it. A stage must not touch slots that it does not name in its constants. (Vectors of scalable
// instruction sets cannot be members, so they are arguments.)
struct Stage {
  static constexpr bool kMomentum = false, kSecondMoment = false, kExtra = false;
};
#define HONE_STAGE(S, V)                                                                           \
  template <class S, class V>                                                                      \
  HONE_RULE static void apply([[maybe_unused]] const S& s, [[maybe_unused]] V& p,                  \
                              [[maybe_unused]] V& g, [[maybe_unused]] V& m, [[maybe_unused]] V& v, \
                              [[maybe_unused]] V& x, [[maybe_unused]] V& u, [[maybe_unused]] V& w)

// Runs all stages, one after another, in one pass.
template <class... Stages>
struct Fused {
  static constexpr bool kMomentum = (Stages::kMomentum || ...);
  static constexpr bool kSecondMoment = (Stages::kSecondMoment || ...);
  static constexpr bool kExtra = (Stages::kExtra || ...);

  template <class S, class V>
  HONE_RULE static void apply(const S& s, V& p, V g, V& m, V& v, V& x) {
    V u = g, w = g;
    (Stages::apply(s, p, g, m, v, x, u, w), ...);
  }
};

// g += λ p
struct CoupledDecay : Stage {
  HONE_STAGE(S, V) { u = g = mul_add(set<V>(s.l2), p, g); }
};

// m <- β m + share u, a sum with decaying weights; u = m
struct DecayingSum : Stage {
  static constexpr bool kMomentum = true;
  HONE_STAGE(S, V) { u = m = mul_add(u, set<V>(s.grad_share), mul(m, set<V>(s.momentum_keep))); }
};

// Like DecayingSum, then u <- look_ahead m + direct u: Nesterov momentum, or either term alone
struct Momentum : Stage {
  static constexpr bool kMomentum = true;
  HONE_STAGE(S, V) {
    m = mul_add(u, set<V>(s.grad_share), mul(m, set<V>(s.momentum_keep)));
    u = mul_add(m, set<V>(s.look_ahead), mul(u, set<V>(s.direct)));
  }
};

// m <- m + (1 - β)(g - m); u = m. Unlike β m + (1 - β) g, this form keeps the fixed point and the
// bias correction when β is rounded to fp32.
struct MovingMean : Stage {
  static constexpr bool kMomentum = true;
  HONE_STAGE(S, V) { u = m = mul_add(set<V>(s.mean_share), sub(g, m), m); }
};

// u = sign of m + update_share (g - m); m <- m + mean_share (g - m)
struct SignOfMean : Stage {
  static constexpr bool kMomentum = true;
  HONE_STAGE(S, V) {
    const V difference = sub(g, m);
    u = sign(mul_add(set<V>(s.update_share), difference, m));
    m = mul_add(set<V>(s.mean_share), difference, m);
  }
};

// v <- (v - share v) + share g²; w = v. Rounding share to fp32 shifts no fixed point. g² itself,
// which overflows from |g| = 1.8e19 on, is never computed. An infinite v stays infinite and its
// parameter stops: for inf - share inf = NaN and a second number, `max` returns the second.
struct MovingSquare : Stage {
  static constexpr bool kSecondMoment = true;
  HONE_STAGE(S, V) {
    const V share = set<V>(s.square_share);
    const V decayed = max(nmul_add(share, v, v), mul(v, set<V>((1 - s.square_share) * 0.999999f)));
    w = v = mul_add(mul(share, g), g, decayed);
  }
};

// v += g²; w = v
struct SumOfSquares : Stage {
  static constexpr bool kSecondMoment = true;
  HONE_STAGE(S, V) { w = v = mul_add(g, g, v); }
};

// w = max(v, x); x <- w, or 0 where largest_kept is 0 (NaN stays NaN)
struct LargestSquare : Stage {
  static constexpr bool kExtra = true;
  HONE_STAGE(S, V) {
    w = max(v, x);
    x = min(set<V>(s.largest_kept), w);
  }
};

// x <- x + center_share (g - x); w = v - x², a variance, or 0 if rounding makes it negative
struct Centered : Stage {
  static constexpr bool kExtra = true;
  HONE_STAGE(S, V) {
    x = mul_add(set<V>(s.center_share), sub(g, x), x);
    w = max(set<V>(0), nmul_add(x, x, v));
  }
};

// u *= η
struct TimesRate : Stage {
  HONE_STAGE(S, V) { u = mul(u, set<V>(s.lr)); }
};

// u /= root_scale sqrt(w) + ε
struct OverRoot : Stage {
  HONE_STAGE(S, V) { u = div(u, mul_add(sqrt(w), set<V>(s.root_scale), set<V>(s.eps))); }
};

// p <- keep p - u
struct Descend : Stage {
  HONE_STAGE(S, V) { p = mul_sub(p, set<V>(s.keep), u); }
};

// p <- p - η u, rounded once
struct DescendByRate : Stage {
  HONE_STAGE(S, V) { p = nmul_add(u, set<V>(s.lr), p); }
};

// ---- hone's rules; formulas: sgd.h, adam.h, …

using SGDRule = Fused<CoupledDecay, DescendByRate>;
using SGDMomentumRule = Fused<CoupledDecay, Momentum, DescendByRate>;
using AdamRule = Fused<CoupledDecay, MovingMean, MovingSquare, TimesRate, OverRoot, Descend>;
using AMSGradRule =
    Fused<CoupledDecay, MovingMean, MovingSquare, LargestSquare, TimesRate, OverRoot, Descend>;
using LionRule = Fused<SignOfMean, TimesRate, Descend>;
using AdagradRule = Fused<CoupledDecay, SumOfSquares, TimesRate, OverRoot, Descend>;
using RMSpropRule = Fused<CoupledDecay, MovingSquare, OverRoot, DescendByRate>;
using RMSpropMomentumRule = Fused<CoupledDecay, MovingSquare, OverRoot, Momentum, DescendByRate>;
using CenteredRMSpropRule = Fused<CoupledDecay, MovingSquare, Centered, OverRoot, DescendByRate>;
using CenteredRMSpropMomentumRule =
    Fused<CoupledDecay, MovingSquare, Centered, OverRoot, Momentum, DescendByRate>;
using TAMRule = Fused<CoupledDecay, DecayingSum, TimesRate, Descend>;
using AdaTAMRule = Fused<CoupledDecay, DecayingSum, MovingSquare, TimesRate, OverRoot, Descend>;

}  // namespace HONE_RULE_NAMESPACE
}  // namespace hone::kernels
HONE_RULE_AFTER_NAMESPACE();

#endif
