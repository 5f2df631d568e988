// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hone/kernels/training/train_ops.h"

namespace hone::kernels::training {

void add_rms_norm_ref(const AddRmsNorm& op) {
  for (Index row = 0; row < op.rows; ++row) {
    const Index at = row * op.dim;
    double squares = 0;
    for (Index i = 0; i < op.dim; ++i) {
      const float value = op.delta == nullptr ? op.x[at + i] : op.x[at + i] + op.delta[at + i];
      if (op.delta != nullptr) op.sum[at + i] = value;
      squares += static_cast<double>(value) * value;
    }
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(op.dim) + op.eps);
    op.inverse_rms[row] = static_cast<float>(scale);
    const float* from = op.delta == nullptr ? op.x : op.sum;
    for (Index i = 0; i < op.dim; ++i) {
      op.normed[at + i] = static_cast<float>(from[at + i] * scale * op.weight[i]);
    }
  }
}

void add_rms_norm_grad_ref(const AddRmsNormGrad& op) {
  std::vector<double> weight_sum(static_cast<std::size_t>(op.dim));
  for (Index row = 0; row < op.rows; ++row) {
    const Index at = row * op.dim;
    const double r = op.inverse_rms[row];
    double dot = 0;
    for (Index i = 0; i < op.dim; ++i) {
      const double gx = static_cast<double>(op.grad_normed[at + i]) * op.sum[at + i];
      dot += gx * op.weight[i];
      weight_sum[static_cast<std::size_t>(i)] += gx * r;
    }
    for (Index i = 0; i < op.dim; ++i) {
      const double carried = op.grad_sum == nullptr ? 0.0 : op.grad_sum[at + i];
      const double gw = static_cast<double>(op.grad_normed[at + i]) * op.weight[i];
      op.grad_x[at + i] = static_cast<float>(
          carried + r * gw - op.sum[at + i] * r * r * r * dot / static_cast<double>(op.dim));
    }
  }
  std::transform(weight_sum.begin(), weight_sum.end(), op.grad_weight,
                 [](double value) { return static_cast<float>(value); });
}

void swiglu_ref(const SwiGlu& op) {
  for (Index row = 0; row < op.rows; ++row) {
    for (Index i = 0; i < op.dim; ++i) {
      const double gate = op.gate_up[row * 2 * op.dim + i];
      const double up = op.gate_up[row * 2 * op.dim + op.dim + i];
      op.out[row * op.dim + i] = static_cast<float>(gate / (1.0 + std::exp(-gate)) * up);
    }
  }
}

void swiglu_grad_ref(const SwiGluGrad& op) {
  for (Index row = 0; row < op.rows; ++row) {
    const Index at = row * 2 * op.dim;
    for (Index i = 0; i < op.dim; ++i) {
      const double gate = op.gate_up[at + i], up = op.gate_up[at + op.dim + i];
      const double g = op.grad_out[row * op.dim + i], s = 1.0 / (1.0 + std::exp(-gate));
      op.grad_gate_up[at + i] = static_cast<float>(g * up * s * (1.0 + gate * (1.0 - s)));
      op.grad_gate_up[at + op.dim + i] = static_cast<float>(g * gate * s);
    }
  }
}

void rope_ref(const Rope& op) {
  const Index half = op.head_dim / 2;
  for (Index row = 0; row < op.rows; ++row) {
    const Index table = row % op.positions * half;
    for (Index head = 0; head < op.heads; ++head) {
      const float* in = op.in + row * op.in_stride + head * op.head_dim;
      float* out = op.out + row * op.out_stride + head * op.head_dim;
      for (Index i = 0; i < half; ++i) {
        const double a = in[i], b = in[half + i], c = op.cos[table + i];
        const double s = op.inverse ? -op.sin[table + i] : op.sin[table + i];
        out[i] = static_cast<float>(a * c - b * s);
        out[half + i] = static_cast<float>(b * c + a * s);
      }
    }
  }
}

void cross_entropy_ref(const CrossEntropy& op) {
  for (Index row = 0; row < op.rows; ++row) {
    float* z = op.logits + row * op.classes;
    const std::int64_t target = op.targets[row];
    double total = 0;
    double peak = -std::numeric_limits<double>::infinity();
    for (Index i = 0; i < op.classes; ++i) peak = std::max<double>(peak, z[i]);
    for (Index i = 0; i < op.classes; ++i) total += std::exp(z[i] - peak);
    op.nats[row] = target < 0 ? 0.0 : std::log(total) + (peak - z[target]);
    if (!op.want_grad) continue;
    for (Index i = 0; i < op.classes; ++i) {
      const double p = std::exp(z[i] - peak) / total - (i == target ? 1.0 : 0.0);
      z[i] = target < 0 ? 0.0f : static_cast<float>(p);
    }
  }
}

}  // namespace hone::kernels::training
