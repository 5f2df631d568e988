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
  if (dtype == Dtype::Int8) return reinterpret_cast<const std::int8_t*>(plane)[at];
  return f16_to_float(reinterpret_cast<const std::uint16_t*>(plane)[at]);
}

// The factors of a token's key and value.
double key_scale(const KvView& cache, Index t, Index kv_head) {
  if (cache.layout.dtype != Dtype::Int8) return 1;
  return f16_to_float(cache.key_scales(t / kKvBlockTokens, kv_head)[t % kKvBlockTokens]);
}
double value_scale(const KvView& cache, Index t, Index kv_head) {
  if (cache.layout.dtype != Dtype::Int8) return 1;
  return f16_to_float(cache.value_scales(t / kKvBlockTokens, kv_head)[t % kKvBlockTokens]);
}

// One head of one row over positions [begin, end).
void attend_row(const AttentionArgs& args, const KvView& cache, Index kv_head, Index begin,
                Index end, const float* q, float* out) {
  const KvLayout& layout = args.layout;
  const Index dim = layout.head_dim;
  std::vector<double> p(static_cast<std::size_t>(end)), sums(static_cast<std::size_t>(dim));
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  for (Index t = begin; t < end; ++t) {
    const std::byte* keys = cache.keys(t / kKvBlockTokens, kv_head);
    double score = 0;
    for (Index i = 0; i < dim; ++i) {
      score += q[i] * element(keys, layout.key_element(t % kKvBlockTokens, i), layout.dtype);
    }
    score *= args.scale * key_scale(cache, t, kv_head);
    if (args.soft_cap > 0) score = args.soft_cap * std::tanh(score / args.soft_cap);
    max = std::max(max, p[t] = score);
  }
  for (Index t = begin; t < end; ++t) {
    const std::byte* values = cache.values(t / kKvBlockTokens, kv_head);
    const double weight = std::exp(p[t] - max);
    sum += weight;
    const double scaled = weight * value_scale(cache, t, kv_head);
    for (Index i = 0; i < dim; ++i) {
      sums[i] += scaled * element(values, t % kKvBlockTokens * dim + i, layout.dtype);
    }
  }
  for (Index i = 0; i < dim; ++i) out[i] = static_cast<float>(sums[i] / sum);
}

}  // namespace

void attention_ref(const AttentionArgs& args) {
  const KvLayout& layout = args.layout;
  const Index dim = layout.head_dim, group = args.heads / layout.kv_heads;
  Index first_row = 0;
  for (const AttentionSequence& sequence : args.sequences) {
    const KvView cache{layout, args.layer, sequence.blocks};
    for (Index row = 0; row < sequence.rows; ++row) {
      const Index end = sequence.first_position + row + 1;
      const Index begin = args.window > 0 ? std::max<Index>(0, end - args.window) : 0;
      for (Index head = 0; head < args.heads; ++head) {
        const Index at = first_row + row;
        attend_row(args, cache, head / group, begin, end, args.q + at * args.q_stride + head * dim,
                   args.out + at * args.out_stride + head * dim);
      }
    }
    first_row += sequence.rows;
  }
}

}  // namespace hone::kernels
