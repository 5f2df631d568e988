// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/attention_contestants.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

#include "hone/bench/torch/linalg_work.h"
#include "hone/core/check.h"
#include "hone/train/sketch/linear_attention.h"

namespace hone::bench {
namespace {

using torch::Tensor;

constexpr std::uint64_t kInputSeed = 31, kLayerSeed = 37;
constexpr Index kCheckedRows = 64;

struct Heads {
  Tensor q, k, v;
};

// q, k, v of x by the layer's projections, in the type of x.
Heads project(const nn::RandomFeatureAttention& layer, const Tensor& x) {
  const Index heads = layer->options.heads;
  const Tensor weight = layer->in_proj_weight.to(x.scalar_type());
  const Tensor bias = layer->in_proj_bias.to(x.scalar_type());
  const auto parts = at::linear(x, weight, bias)
                         .view({x.size(0), x.size(1), 3 * heads, x.size(2) / heads})
                         .split(heads, 2);
  return {parts[0], parts[1], parts[2]};
}

Tensor project_out(const nn::RandomFeatureAttention& layer, const Tensor& heads) {
  const auto type = heads.scalar_type();
  return at::linear(heads.flatten(-2), layer->out_proj_weight.to(type),
                    layer->out_proj_bias.to(type));
}

Tensor seeded(at::IntArrayRef sizes, std::uint64_t seed) {
  return gaussian_matrix(sizes[1], c10::multiply_integers(sizes) / sizes[1], seed, at::kFloat)
      .view(sizes);
}

// Rows [heads, rows, keys] of weights that may attend, others 0.
Tensor visible(Tensor weights, const Tensor& rows, bool causal) {
  if (!causal) return weights;
  const Tensor keys = at::arange(weights.size(2), at::kLong);
  return weights.masked_fill(keys.unsqueeze(0).gt(rows.unsqueeze(1)), 0);
}

// q of the rows and all k, v in f64, [heads, tokens, dim].
Heads exact_heads(const AttentionWork& work, const Tensor& rows) {
  Heads heads{work.q, work.k, work.v};
  if (work.shape.is_layer) heads = project(work.layer, work.x.to(at::kDouble));
  const auto first = [](const Tensor& x) {
    return x.detach().to(at::kDouble).squeeze(0).transpose(0, 1);
  };
  return {first(heads.q).index_select(1, rows), first(heads.k), first(heads.v)};
}

Tensor finished(const AttentionWork& work, const Tensor& weights, const Tensor& v) {
  const Tensor out = at::matmul(weights / weights.sum(-1, true), v).transpose(0, 1);
  return work.shape.is_layer ? project_out(work.layer, out) : out.flatten(1);
}

Tensor softmax_weights(const Heads& heads, const Tensor& rows, bool causal) {
  const double scale = 1 / std::sqrt(static_cast<double>(heads.q.size(2)));
  const Tensor scores = at::matmul(heads.q, heads.k.transpose(1, 2)) * scale;
  return visible((scores - scores.amax(-1, true)).exp(), rows, causal);
}

Tensor arc_cosine_weights(const Heads& heads) {
  const Tensor norms = at::linalg_vector_norm(heads.q, 2, at::IntArrayRef{-1}, true) *
                       at::linalg_vector_norm(heads.k, 2, at::IntArrayRef{-1}).unsqueeze(1);
  const Tensor cosine = (at::matmul(heads.q, heads.k.transpose(1, 2)) / norms).clamp(-1, 1);
  const Tensor angle = cosine.acos();
  return norms * (angle.sin() + (std::numbers::pi - angle) * cosine) / (2 * std::numbers::pi);
}

}  // namespace

AttentionWork make_attention_work(const AttentionShape& shape) {
  const at::NoGradGuard no_grad;
  const Index width = shape.heads * shape.dim;
  AttentionWork work{.shape = shape};
  work.layer =
      nn::RandomFeatureAttention(nn::RandomFeatureAttentionOptions{.embed_dim = width,
                                                                   .heads = shape.heads,
                                                                   .features = shape.features,
                                                                   .kind = shape.kind,
                                                                   .causal = shape.causal,
                                                                   .seed = kLayerSeed});
  const std::vector<std::int64_t> sizes{1, shape.tokens, shape.heads, shape.dim};
  const double spread = shape.norm / std::sqrt(static_cast<double>(shape.dim));
  if (shape.is_layer) {
    work.x = seeded({1, shape.tokens, width}, kInputSeed);
    const Heads heads = project(work.layer, work.x);
    const double size = at::cat({heads.q, heads.k}).square().mean().sqrt().item<double>();
    work.x.mul_(spread / size);
    return work;
  }
  work.q = seeded(sizes, kInputSeed).mul_(spread);
  work.k = seeded(sizes, kInputSeed + 1).mul_(spread);
  work.v = seeded(sizes, kInputSeed + 2);
  return work;
}

AttentionContestant::AttentionContestant(const std::string& way, const AttentionWork& work)
    : way_(way), shape_(work.shape), layer_(work.layer) {
  HONE_CHECK(way == "hone" || way == "sdpa" || way == "loop", "bench attention", "sdpa or loop",
             way);
  HONE_REQUIRE(way != "loop" || shape_.causal, "bench attention", "The loop is causal.");
  const auto leaf = [&](const Tensor& x) {
    const Tensor own = way_ == "sdpa" && !shape_.is_layer
                           ? x.transpose(1, 2).clone(at::MemoryFormat::Contiguous)
                           : x.clone();
    return own.requires_grad_(shape_.is_train);
  };
  if (shape_.is_layer) {
    x_ = leaf(work.x);
  } else {
    q_ = leaf(work.q);
    k_ = leaf(work.k);
    v_ = leaf(work.v);
  }
  if (shape_.is_train) {
    gradient_ = seeded({1, shape_.tokens, shape_.heads * shape_.dim}, kInputSeed + 3);
  }
}

Tensor AttentionContestant::attend(const Tensor& q, const Tensor& k, const Tensor& v) const {
  if (way_ == "sdpa") {
    const auto heads_first = [&](const Tensor& x) {
      return shape_.is_layer ? x.transpose(1, 2) : x;
    };
    return at::scaled_dot_product_attention(heads_first(q), heads_first(k), heads_first(v), {}, 0.0,
                                            shape_.causal)
        .transpose(1, 2);
  }
  if (way_ == "loop") return looped_attention(q, k, v, layer_->omega, shape_.kind);
  return nn::linear_attention(q, k, v, layer_->omega, {shape_.kind, shape_.causal, 0});
}

Tensor AttentionContestant::forward() const {
  if (!shape_.is_layer) return attend(q_, k_, v_).flatten(2);
  nn::RandomFeatureAttention layer = layer_;
  if (way_ == "hone") return layer->forward(x_, x_, x_);
  const Heads heads = project(layer_, x_);
  return project_out(layer_, attend(heads.q, heads.k, heads.v));
}

void AttentionContestant::run() const {
  if (shape_.is_train) {
    forward().backward(gradient_);
  } else {
    const at::NoGradGuard no_grad;
    forward();
  }
}

void AttentionContestant::clear() const {
  for (const Tensor& leaf : {x_, q_, k_, v_}) {
    if (leaf.defined()) leaf.mutable_grad() = Tensor();
  }
  for (const Tensor& parameter : layer_->parameters()) parameter.mutable_grad() = Tensor();
}

Tensor looped_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& omega,
                        nn::FeatureKind kind) {
  const Tensor projection = omega.detach().to(q.scalar_type());
  const double features = static_cast<double>(omega.size(0));
  const double dim = static_cast<double>(omega.size(1));
  // Softmax features of queries are relative to their own largest, those of keys to that of all
  // keys of the head; both cancel.
  const auto features_of = [&](const Tensor& tokens, bool is_key) {
    const Tensor x = tokens.transpose(1, 2);
    if (kind == nn::FeatureKind::Relu) {
      return at::relu(at::matmul(x, projection.t()) / std::sqrt(features));
    }
    const Tensor y = x * std::pow(dim, -0.25);
    const Tensor exponent = at::matmul(y, projection.t()) - y.square().sum(-1, true) / 2;
    const Tensor largest =
        is_key ? exponent.detach().amax({2, 3}, true) : exponent.detach().amax(-1, true);
    return (exponent - largest).exp();
  };
  const Tensor phi_q = features_of(q, false), phi_k = features_of(k, true);
  const Tensor values = v.transpose(1, 2);
  const Tensor y = at::cat({values, at::ones_like(values.slice(3, 0, 1))}, 3);
  Tensor state = at::zeros({q.size(0), q.size(2), omega.size(0), y.size(3)}, y.options());
  std::vector<Tensor> sums;
  for (Index token = 0; token < q.size(1); ++token) {
    state = state + phi_k.select(2, token).unsqueeze(3) * y.select(2, token).unsqueeze(2);
    sums.push_back(at::matmul(phi_q.select(2, token).unsqueeze(2), state));
  }
  const Tensor sum = at::cat(sums, 2);
  const Tensor divisor = sum.slice(3, v.size(3)).clamp_min(std::numeric_limits<float>::min());
  return (sum.slice(3, 0, v.size(3)) / divisor).transpose(1, 2);
}

double loop_graph_bytes(const AttentionShape& shape) {
  return static_cast<double>(shape.tokens) * static_cast<double>(shape.heads) *
         static_cast<double>(shape.features) * static_cast<double>(shape.dim + 1) * sizeof(float);
}

Tensor checked_rows(const AttentionShape& shape) {
  const Index count = std::min(kCheckedRows, shape.tokens);
  return (at::arange(1, count + 1, at::kLong) * shape.tokens).div(count, "floor") - 1;
}

Tensor exact_attention(const AttentionWork& work, const Tensor& rows) {
  const at::NoGradGuard no_grad;
  const Heads heads = exact_heads(work, rows);
  return finished(work, softmax_weights(heads, rows, work.shape.causal), heads.v);
}

Tensor kernel_attention(const AttentionWork& work, const Tensor& rows) {
  if (work.shape.kind == nn::FeatureKind::Softmax) return exact_attention(work, rows);
  const at::NoGradGuard no_grad;
  const Heads heads = exact_heads(work, rows);
  return finished(work, visible(arc_cosine_weights(heads), rows, work.shape.causal), heads.v);
}

}  // namespace hone::bench
