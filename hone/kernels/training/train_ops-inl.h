// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target by train_ops.cc. A vector body and a scalar tail per row.
#if defined(HONE_KERNELS_TRAINING_TRAIN_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_TRAINING_TRAIN_OPS_INL_H_
#undef HONE_KERNELS_TRAINING_TRAIN_OPS_INL_H_
#else
#define HONE_KERNELS_TRAINING_TRAIN_OPS_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/kernels/training/train_ops.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels::training {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;

// Largest multiple of the vector length that is ≤ n.
HWY_INLINE Index whole_vectors(Index n) {
  const auto lanes = static_cast<Index>(hn::Lanes(Floats()));
  return n - n % lanes;
}
HWY_INLINE Index lanes() { return static_cast<Index>(hn::Lanes(Floats())); }

void add_rms_norm_rows(const AddRmsNorm& op, Index begin, Index end) {
  const Floats d;
  const Index whole = whole_vectors(op.dim);
  for (Index row = begin; row < end; ++row) {
    const float* HWY_RESTRICT x = op.x + row * op.dim;
    const float* HWY_RESTRICT delta = op.delta == nullptr ? nullptr : op.delta + row * op.dim;
    float* HWY_RESTRICT sum = op.sum + (delta == nullptr ? 0 : row * op.dim);
    auto squares = hn::Zero(d);
    float tail_squares = 0;
    for (Index i = 0; i < whole; i += lanes()) {
      auto v = hn::LoadU(d, x + i);
      if (delta != nullptr) {
        v = hn::Add(v, hn::LoadU(d, delta + i));
        hn::StoreU(v, d, sum + i);
      }
      squares = hn::MulAdd(v, v, squares);
    }
    for (Index i = whole; i < op.dim; ++i) {
      const float v = delta == nullptr ? x[i] : (sum[i] = x[i] + delta[i]);
      tail_squares += v * v;
    }
    const double mean = (static_cast<double>(hn::GetLane(hn::SumOfLanes(d, squares))) +
                         static_cast<double>(tail_squares)) /
                        static_cast<double>(op.dim);
    const auto scale = static_cast<float>(1.0 / std::sqrt(mean + op.eps));
    op.inverse_rms[row] = scale;
    const float* HWY_RESTRICT from = delta == nullptr ? x : sum;
    float* HWY_RESTRICT normed = op.normed + row * op.dim;
    const auto scales = hn::Set(d, scale);
    for (Index i = 0; i < whole; i += lanes()) {
      const auto v = hn::Mul(hn::LoadU(d, from + i), scales);
      hn::StoreU(hn::Mul(v, hn::LoadU(d, op.weight + i)), d, normed + i);
    }
    for (Index i = whole; i < op.dim; ++i) normed[i] = from[i] * scale * op.weight[i];
  }
}

// `weight_sum` [dim] gains Σ g·x·r of these rows.
void add_rms_norm_grad_rows(const AddRmsNormGrad& op, Index begin, Index end,
                            float* HWY_RESTRICT weight_sum) {
  const Floats d;
  const Index whole = whole_vectors(op.dim);
  for (Index row = begin; row < end; ++row) {
    const float* HWY_RESTRICT x = op.sum + row * op.dim;
    const float* HWY_RESTRICT g = op.grad_normed + row * op.dim;
    const float* carried = op.grad_sum == nullptr ? nullptr : op.grad_sum + row * op.dim;
    float* out = op.grad_x + row * op.dim;
    const float r = op.inverse_rms[row];
    const auto rs = hn::Set(d, r);
    auto products = hn::Zero(d);
    float tail = 0;
    for (Index i = 0; i < whole; i += lanes()) {
      const auto gx = hn::Mul(hn::LoadU(d, g + i), hn::LoadU(d, x + i));
      products = hn::MulAdd(gx, hn::LoadU(d, op.weight + i), products);
      hn::StoreU(hn::MulAdd(gx, rs, hn::LoadU(d, weight_sum + i)), d, weight_sum + i);
    }
    for (Index i = whole; i < op.dim; ++i) {
      tail += g[i] * x[i] * op.weight[i];
      weight_sum[i] += g[i] * x[i] * r;
    }
    const float dot = hn::GetLane(hn::SumOfLanes(d, products)) + tail;
    const float back = -r * r * r * dot / static_cast<float>(op.dim);
    const auto backs = hn::Set(d, back);
    for (Index i = 0; i < whole; i += lanes()) {
      const auto gw = hn::Mul(hn::LoadU(d, g + i), hn::LoadU(d, op.weight + i));
      const auto base = carried == nullptr ? hn::Zero(d) : hn::LoadU(d, carried + i);
      const auto v = hn::MulAdd(gw, rs, hn::MulAdd(hn::LoadU(d, x + i), backs, base));
      hn::StoreU(v, d, out + i);
    }
    for (Index i = whole; i < op.dim; ++i) {
      out[i] = g[i] * op.weight[i] * r + (x[i] * back + (carried == nullptr ? 0.0f : carried[i]));
    }
  }
}

// hn::Exp is defined up to 88.7; from there on the sigmoid is 0 to f32's precision.
template <class D, class V>
HWY_INLINE V sigmoid(D d, V z) {
  const auto one = hn::Set(d, 1.0f);
  const auto exponent = hn::Min(hn::Neg(z), hn::Set(d, 88.0f));
  return hn::Div(one, hn::Add(one, hn::Exp(d, exponent)));
}

HWY_INLINE float scalar_sigmoid(float z) { return 1.0f / (1.0f + std::exp(-z)); }

void swiglu_rows(const SwiGlu& op, Index begin, Index end) {
  const Floats d;
  const Index whole = whole_vectors(op.dim);
  for (Index row = begin; row < end; ++row) {
    const float* HWY_RESTRICT gate = op.gate_up + row * 2 * op.dim;
    const float* HWY_RESTRICT up = gate + op.dim;
    float* HWY_RESTRICT out = op.out + row * op.dim;
    for (Index i = 0; i < whole; i += lanes()) {
      const auto z = hn::LoadU(d, gate + i);
      hn::StoreU(hn::Mul(hn::Mul(z, sigmoid(d, z)), hn::LoadU(d, up + i)), d, out + i);
    }
    for (Index i = whole; i < op.dim; ++i) out[i] = gate[i] * scalar_sigmoid(gate[i]) * up[i];
  }
}

// d silu/dz = s·(1 + z·(1 - s)).
void swiglu_grad_rows(const SwiGluGrad& op, Index begin, Index end) {
  const Floats d;
  const Index whole = whole_vectors(op.dim);
  const auto one = hn::Set(d, 1.0f);
  for (Index row = begin; row < end; ++row) {
    const float* gate = op.gate_up + row * 2 * op.dim;
    const float* up = gate + op.dim;
    const float* HWY_RESTRICT g = op.grad_out + row * op.dim;
    float* grad_gate = op.grad_gate_up + row * 2 * op.dim;
    float* grad_up = grad_gate + op.dim;
    for (Index i = 0; i < whole; i += lanes()) {
      const auto z = hn::LoadU(d, gate + i);
      const auto u = hn::LoadU(d, up + i);
      const auto gi = hn::LoadU(d, g + i);
      const auto s = sigmoid(d, z);
      const auto slope = hn::Mul(s, hn::MulAdd(z, hn::Sub(one, s), one));
      hn::StoreU(hn::Mul(gi, hn::Mul(z, s)), d, grad_up + i);
      hn::StoreU(hn::Mul(gi, hn::Mul(u, slope)), d, grad_gate + i);
    }
    for (Index i = whole; i < op.dim; ++i) {
      const float z = gate[i], u = up[i], s = scalar_sigmoid(z);
      grad_up[i] = g[i] * (z * s);
      grad_gate[i] = g[i] * (u * (s * (1.0f + z * (1.0f - s))));
    }
  }
}

void rope_rows(const Rope& op, Index begin, Index end) {
  const Floats d;
  const Index half = op.head_dim / 2, whole = whole_vectors(half);
  const float sign = op.inverse ? -1.0f : 1.0f;
  const auto signs = hn::Set(d, sign);
  for (Index row = begin; row < end; ++row) {
    const Index position = row % op.positions;
    const float* HWY_RESTRICT cos = op.cos + position * half;
    const float* HWY_RESTRICT sin = op.sin + position * half;
    for (Index head = 0; head < op.heads; ++head) {
      const float* in = op.in + row * op.in_stride + head * op.head_dim;
      float* out = op.out + row * op.out_stride + head * op.head_dim;
      for (Index i = 0; i < whole; i += lanes()) {
        const auto a = hn::LoadU(d, in + i), b = hn::LoadU(d, in + half + i);
        const auto c = hn::LoadU(d, cos + i), s = hn::Mul(signs, hn::LoadU(d, sin + i));
        hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, out + i);
        hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, out + half + i);
      }
      for (Index i = whole; i < half; ++i) {
        const float a = in[i], b = in[half + i], s = sign * sin[i];
        out[i] = a * cos[i] - b * s;
        out[half + i] = b * cos[i] + a * s;
      }
    }
  }
}

// Writes e^{z - peak} over z when `keep`; returns their sum.
HWY_INLINE double exp_sum(float* z, Index n, float peak, bool keep) {
  const Floats d;
  const Index whole = whole_vectors(n);
  const auto peaks = hn::Set(d, peak);
  auto sums = hn::Zero(d);
  for (Index i = 0; i < whole; i += lanes()) {
    const auto e = hn::Exp(d, hn::Sub(hn::LoadU(d, z + i), peaks));
    if (keep) hn::StoreU(e, d, z + i);
    sums = hn::Add(sums, e);
  }
  double total = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sums)));
  for (Index i = whole; i < n; ++i) {
    const float e = std::exp(z[i] - peak);
    if (keep) z[i] = e;
    total += static_cast<double>(e);
  }
  return total;
}

// The largest logit; NaN when one is NaN.
HWY_INLINE float row_max(const float* z, Index n) {
  const Floats d;
  const Index whole = whole_vectors(n);
  auto peaks = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto nan = hn::FirstN(d, 0);
  for (Index i = 0; i < whole; i += lanes()) {
    const auto v = hn::LoadU(d, z + i);
    peaks = hn::Max(peaks, v);
    nan = hn::Or(nan, hn::IsNaN(v));
  }
  if (!hn::AllFalse(d, nan)) return std::numeric_limits<float>::quiet_NaN();
  float peak = hn::GetLane(hn::MaxOfLanes(d, peaks));
  for (Index i = whole; i < n; ++i) {
    if (std::isnan(z[i])) return z[i];
    peak = std::max(peak, z[i]);
  }
  return peak;
}

HWY_INLINE void scale_row(float* z, Index n, float factor) {
  const Floats d;
  const Index whole = whole_vectors(n);
  const auto factors = hn::Set(d, factor);
  for (Index i = 0; i < whole; i += lanes()) {
    hn::StoreU(hn::Mul(hn::LoadU(d, z + i), factors), d, z + i);
  }
  for (Index i = whole; i < n; ++i) z[i] *= factor;
}

void cross_entropy_rows(const CrossEntropy& op, Index begin, Index end) {
  for (Index row = begin; row < end; ++row) {
    float* z = op.logits + row * op.classes;
    const std::int64_t target = op.targets[row];
    if (target < 0) {
      op.nats[row] = 0;
      if (op.want_grad) std::fill_n(z, op.classes, 0.0f);
      continue;
    }
    const float peak = row_max(z, op.classes), wanted = z[target];
    if (!std::isfinite(peak)) {  // no law; hn::Exp would turn the NaN into 0
      op.nats[row] = std::numeric_limits<double>::quiet_NaN();
      if (op.want_grad) std::fill_n(z, op.classes, std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    const double total = exp_sum(z, op.classes, peak, op.want_grad);
    op.nats[row] = std::log(total) + (static_cast<double>(peak) - static_cast<double>(wanted));
    if (op.want_grad) {
      scale_row(z, op.classes, static_cast<float>(1.0 / total));
      z[target] -= 1.0f;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels::training
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
