// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/kernels/attention/attention.h"

namespace hone::kernels {
namespace {

double element(const std::byte* plane, Index at, Dtype dtype) {
  if (dtype == Dtype::Float32) return reinterpret_cast<const float*>(plane)[at];
  return f16_to_float(reinterpret_cast<const std::uint16_t*>(plane)[at]);
}

}  // namespace

void attention_ref(const AttentionArgs& args) {
  const KvLayout& layout = args.cache.layout;
  const Index dim = layout.head_dim, group = args.heads / layout.kv_heads;
  for (Index row = 0; row < args.rows; ++row) {
    const Index tokens = args.first_position + row + 1;
    for (Index head = 0; head < args.heads; ++head) {
      const float* q = args.q + row * args.q_stride + head * dim;
      std::vector<double> p(static_cast<std::size_t>(tokens)), out(static_cast<std::size_t>(dim));
      double max = -std::numeric_limits<double>::infinity(), sum = 0;
      for (Index t = 0; t < tokens; ++t) {
        const std::byte* keys = args.cache.keys(t / kKvBlockTokens, head / group);
        double score = 0;
        for (Index i = 0; i < dim; ++i) {
          score += q[i] * element(keys, layout.key_element(t % kKvBlockTokens, i), layout.dtype);
        }
        max = std::max(max, p[t] = score * args.scale);
      }
      for (Index t = 0; t < tokens; ++t) {
        const std::byte* values = args.cache.values(t / kKvBlockTokens, head / group);
        const double weight = std::exp(p[t] - max);
        sum += weight;
        for (Index i = 0; i < dim; ++i) {
          out[i] += weight * element(values, t % kKvBlockTokens * dim + i, layout.dtype);
        }
      }
      float* to = args.out + row * args.out_stride + head * dim;
      for (Index i = 0; i < dim; ++i) to[i] = static_cast<float>(out[i] / sum);
    }
  }
}

}  // namespace hone::kernels
