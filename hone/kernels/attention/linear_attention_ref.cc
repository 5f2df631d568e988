// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hone/kernels/attention/linear_attention.h"

namespace hone::kernels {
namespace {

using Values = std::vector<double>;

// The features of the tokens of one head, and the exponents that they lack.
struct Features {
  Values phi, exponents;

  Features(const LinearAttentionArgs& args, const float* x, Index tokens, Index item) {
    const Index b = item / args.heads, h = item % args.heads, m = args.features, dim = args.qk_dim;
    const bool is_relu = args.kind == FeatureKind::Relu;
    phi.resize(static_cast<std::size_t>(tokens * m));
    for (Index t = 0; t < tokens; ++t) {
      const float* row = x + ((b * tokens + t) * args.heads + h) * dim;
      const double scale = std::pow(static_cast<double>(is_relu ? m : dim), is_relu ? -0.5 : -0.25);
      double half = 0, largest = -std::numeric_limits<double>::infinity();
      for (Index i = 0; i < dim; ++i) half += std::pow(scale * row[i], 2) / 2;
      double* to = phi.data() + t * m;
      for (Index f = 0; f < m; ++f) {
        for (Index i = 0; i < dim; ++i) to[f] += scale * row[i] * args.omega[f * dim + i];
        largest = std::max(largest, to[f]);
      }
      for (Index f = 0; f < m; ++f) {
        to[f] = is_relu ? std::max(to[f], 0.0) + args.eps : std::exp(to[f] - largest);
      }
      exponents.push_back(is_relu ? 0 : largest - half);
    }
  }
};

bool admits(const bool* mask, Index at) { return mask == nullptr || mask[at]; }

// The normalized weights [queries, keys] of one head, and their denominators.
struct Weights {
  Values p;

  Weights(const LinearAttentionArgs& args, const Features& q, const Features& k, Index item)
      : p(static_cast<std::size_t>(args.queries * args.keys)) {
    const Index b = item / args.heads, m = args.features;
    for (Index i = 0; i < args.queries; ++i) {
      if (!admits(args.query_mask, b * args.queries + i)) continue;
      const auto is_in = [&](Index j) {
        return (!args.causal || j <= i) && admits(args.key_mask, b * args.keys + j);
      };
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (Index j = 0; j < args.keys; ++j) {
        if (is_in(j)) largest = std::max(largest, k.exponents[static_cast<std::size_t>(j)]);
      }
      double* row = p.data() + i * args.keys;
      for (Index j = 0; j < args.keys; ++j) {
        if (!is_in(j)) continue;
        const double* left = q.phi.data() + i * m;
        const double* right = k.phi.data() + j * m;
        for (Index f = 0; f < m; ++f) row[j] += left[f] * right[f];
        sum += row[j] *= std::exp(k.exponents[static_cast<std::size_t>(j)] - largest);
      }
      const bool is_nothing = sum < kLeastFeatureSum;
      for (Index j = 0; j < args.keys; ++j) row[j] = is_nothing ? 0 : row[j] / sum;
    }
  }
};

// grad of the inputs x of one head by that of ln phi(x_t), which is `by_log` [tokens, features].
void store_grad(const LinearAttentionArgs& args, const Features& features, const Values& by_log,
                const float* x, Index tokens, Index item, float* grad) {
  const Index b = item / args.heads, h = item % args.heads, m = args.features, dim = args.qk_dim;
  const bool is_relu = args.kind == FeatureKind::Relu;
  const double scale = std::pow(static_cast<double>(is_relu ? m : dim), is_relu ? -0.5 : -0.25);
  for (Index t = 0; t < tokens; ++t) {
    const Index at = ((b * tokens + t) * args.heads + h) * dim;
    for (Index i = 0; i < dim; ++i) {
      double sum = 0;
      for (Index f = 0; f < m; ++f) {
        const double by = by_log[static_cast<std::size_t>(t * m + f)];
        const double phi = features.phi[static_cast<std::size_t>(t * m + f)];
        const double w = args.omega[f * dim + i];
        if (!is_relu) {
          sum += by * (w - scale * x[at + i]);
        } else if (phi > args.eps) {
          sum += by / phi * w;
        }
      }
      grad[at + i] = static_cast<float>(scale * sum);
    }
  }
}

}  // namespace

void linear_attention_ref(const LinearAttentionArgs& args) {
  for (Index item = 0; item < args.batch * args.heads; ++item) {
    const Features q(args, args.q, args.queries, item), k(args, args.k, args.keys, item);
    const Weights weights(args, q, k, item);
    const Index b = item / args.heads, h = item % args.heads, dim = args.v_dim;
    for (Index i = 0; i < args.queries; ++i) {
      for (Index e = 0; e < dim; ++e) {
        double sum = 0;
        for (Index j = 0; j < args.keys; ++j) {
          const double p = weights.p[static_cast<std::size_t>(i * args.keys + j)];
          if (p != 0) sum += p * args.v[((b * args.keys + j) * args.heads + h) * dim + e];
        }
        args.out[((b * args.queries + i) * args.heads + h) * dim + e] = static_cast<float>(sum);
      }
    }
  }
}

// With p_ij the weights and o_i the output, d out_i / d ln p_ij = p_ij (v_j - o_i), and ln of a
// product of features moves with ln phi_f by phi_f(q_i) phi_f(k_j) / (phi(q_i) . phi(k_j)).
void linear_attention_grad_ref(const LinearAttentionGradArgs& grad) {
  const LinearAttentionArgs& args = grad.forward;
  const Index m = args.features, dim = args.v_dim;
  std::fill_n(grad.grad_v, args.batch * args.keys * args.heads * dim, 0.0f);
  for (Index item = 0; item < args.batch * args.heads; ++item) {
    const Features q(args, args.q, args.queries, item), k(args, args.k, args.keys, item);
    const Weights weights(args, q, k, item);
    const Index b = item / args.heads, h = item % args.heads;
    Values by_q(q.phi.size()), by_k(k.phi.size()), by_v(static_cast<std::size_t>(args.keys * dim));
    for (Index i = 0; i < args.queries; ++i) {
      const float* by_out = grad.grad_out + ((b * args.queries + i) * args.heads + h) * dim;
      const auto weight = [&](Index j) {
        return weights.p[static_cast<std::size_t>(i * args.keys + j)];
      };
      const auto dot = [&](Index j) {
        const float* v = args.v + ((b * args.keys + j) * args.heads + h) * dim;
        double sum = 0;
        for (Index e = 0; e < dim; ++e) sum += static_cast<double>(by_out[e]) * v[e];
        return sum;
      };
      double mean = 0;
      for (Index j = 0; j < args.keys; ++j) {
        if (weight(j) != 0) mean += weight(j) * dot(j);
      }
      for (Index j = 0; j < args.keys; ++j) {
        if (weight(j) == 0) continue;
        for (Index e = 0; e < dim; ++e) {
          by_v[static_cast<std::size_t>(j * dim + e)] += weight(j) * by_out[e];
        }
        const double *left = q.phi.data() + i * m, *right = k.phi.data() + j * m;
        double product = 0;
        for (Index f = 0; f < m; ++f) product += left[f] * right[f];
        const double by = weight(j) * (dot(j) - mean) / product;
        for (Index f = 0; f < m; ++f) {
          by_q[static_cast<std::size_t>(i * m + f)] += by * left[f] * right[f];
          by_k[static_cast<std::size_t>(j * m + f)] += by * left[f] * right[f];
        }
      }
    }
    store_grad(args, q, by_q, args.q, args.queries, item, grad.grad_q);
    store_grad(args, k, by_k, args.k, args.keys, item, grad.grad_k);
    for (Index j = 0; j < args.keys; ++j) {
      for (Index e = 0; e < dim; ++e) {
        grad.grad_v[((b * args.keys + j) * args.heads + h) * dim + e] =
            static_cast<float>(by_v[static_cast<std::size_t>(j * dim + e)]);
      }
    }
  }
}

}  // namespace hone::kernels
