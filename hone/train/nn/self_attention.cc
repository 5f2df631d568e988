// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/self_attention.h"

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include <cmath>
#include <limits>

#include "hone/core/check.h"
#include "hone/train/nn/ops.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr std::string_view kOp = "SelfAttention";

SelfAttentionOptions resolved(SelfAttentionOptions options) {
  HONE_CHECK(options.heads > 0 && options.dim > 0 && options.dim % options.heads == 0, kOp,
             "heads that divide dim", concat(options.heads, " and ", options.dim));
  if (options.kv_heads == 0) options.kv_heads = options.heads;
  HONE_CHECK(options.kv_heads > 0 && options.heads % options.kv_heads == 0, kOp,
             "kv_heads that divide heads", concat(options.kv_heads, " and ", options.heads));
  return options;
}

// Scores, softmax and product, each of which passes its result through memory.
Tensor separate_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  if (causal) {
    const Tensor later = at::ones({q.size(2), k.size(2)}, q.options().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  return at::matmul(at::softmax(scores, -1), v);
}

}  // namespace

SelfAttentionImpl::SelfAttentionImpl(const SelfAttentionOptions& options)
    : options_(resolved(options)) {
  reset();
}

SelfAttentionImpl::SelfAttentionImpl(const torch::nn::MultiheadAttentionImpl& from, bool causal)
    : options_(resolved({.dim = from.options.embed_dim(),
                         .heads = from.options.num_heads(),
                         .bias = from.options.bias(),
                         .causal = causal})) {
  HONE_REQUIRE(
      from.in_proj_weight.defined() && !from.bias_k.defined() && !from.options.add_zero_attn(), kOp,
      "Keys and values must have the size of queries and no bias of their own.");
  in_weight_ = register_parameter("in_proj_weight", from.in_proj_weight);
  out_weight_ = register_parameter("out_proj_weight", from.out_proj->weight);
  if (!options_.bias) return;
  in_bias_ = register_parameter("in_proj_bias", from.in_proj_bias);
  out_bias_ = register_parameter("out_proj_bias", from.out_proj->bias);
}

void SelfAttentionImpl::reset() {
  const Index head_dim = options_.dim / options_.heads;
  const Index width = (options_.heads + 2 * options_.kv_heads) * head_dim;
  in_weight_ = register_parameter("in_proj_weight", at::empty({width, options_.dim}));
  out_weight_ = register_parameter("out_proj_weight", at::empty({options_.dim, options_.dim}));
  torch::nn::init::xavier_uniform_(in_weight_);
  torch::nn::init::kaiming_uniform_(out_weight_, std::sqrt(5.0));
  if (!options_.bias) return;
  in_bias_ = register_parameter("in_proj_bias", at::zeros({width}));
  out_bias_ = register_parameter("out_proj_bias", at::zeros({options_.dim}));
}

Tensor SelfAttentionImpl::attend(const Tensor& x, bool is_fused) const {
  HONE_CHECK(x.dim() == 3 && x.size(2) == options_.dim, kOp,
             concat("x [batch, positions, ", options_.dim, "]"), c10::str(x.sizes()));
  const auto project = [](const Tensor& in, const Tensor& weight, const Tensor& bias) {
    return linear(in, weight, bias, MatmulBackend::Auto);
  };
  const Index head_dim = options_.dim / options_.heads;
  const Tensor qkv =
      project(x, in_weight_, in_bias_)
          .view({x.size(0), x.size(1), options_.heads + 2 * options_.kv_heads, head_dim})
          .transpose(1, 2);
  const auto heads_of = [&](Index first, Index count) {
    const Tensor part = qkv.narrow(1, first, count);
    return count == options_.heads ? part : part.repeat_interleave(options_.heads / count, 1);
  };
  const Tensor q = heads_of(0, options_.heads);
  const Tensor k = heads_of(options_.heads, options_.kv_heads);
  const Tensor v = heads_of(options_.heads + options_.kv_heads, options_.kv_heads);
  const Tensor heads = is_fused ? at::scaled_dot_product_attention(q, k, v, {}, 0, options_.causal)
                                : separate_attention(q, k, v, options_.causal);
  return project(heads.transpose(1, 2).reshape(x.sizes()), out_weight_, out_bias_);
}

std::vector<FusionSite> SelfAttentionImpl::fusion_sites(const std::string& path) {
  FusionSite site{.pattern = "attention_projection",
                  .layers = {path.substr(0, path.rfind('.'))},
                  .operators = 3};
  site.separate = [this](const Tensor& x) { return attend(x, false); };
  site.fused = [this](const Tensor& x) { return attend(x, true); };
  site.apply = [this] { is_fused_ = true; };
  site.undo = [this] { is_fused_ = false; };
  return {site};
}

}  // namespace hone::nn
