// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/random_feature_attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/philox.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr std::string_view kLayer = "RandomFeatureAttention";

// Uses of a layer's seed.
enum Use : std::uint32_t { kWeights = 10, kFeatures, kPositions };

void fill_uniform(const Tensor& tensor, double bound, PhiloxStream& random) {
  float* values = tensor.data_ptr<float>();
  for (Index i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<float>(bound) * (2 * random.uniform() - 1);
  }
}

// Splits a mask of pairs into its factors and joins them with the others.
LinearAttentionMasks combined(const AttentionMasks& masks, const Tensor& q, const Tensor& k,
                              bool causal) {
  LinearAttentionMasks result{masks.keys, masks.queries};
  if (!masks.pairs.defined()) return result;
  const Index batch = q.size(0), queries = q.size(1), keys = k.size(1);
  const bool is_shared = masks.pairs.dim() == 2;
  const std::vector<Index> wanted =
      is_shared ? std::vector<Index>{queries, keys} : std::vector<Index>{batch, queries, keys};
  HONE_CHECK(masks.pairs.scalar_type() == at::kBool && masks.pairs.sizes() == wanted, kLayer,
             concat("a bool mask of pairs ", c10::str(c10::IntArrayRef(wanted))),
             concat(c10::toString(masks.pairs.scalar_type()), " ", c10::str(masks.pairs.sizes())));
  const Tensor pairs = masks.pairs.expand({batch, queries, keys});
  const Tensor rows = pairs.any(2), cols = pairs.any(1);
  const Tensor outer = rows.unsqueeze(2).logical_and(cols.unsqueeze(1));
  HONE_REQUIRE(pairs.equal(outer) || (causal && pairs.equal(outer.tril())), kLayer,
               causal ? "The mask of pairs is not an outer product of masks of queries and keys, "
                        "on and below the diagonal."
                      : "The mask of pairs is not an outer product of masks of queries and keys.");
  result.keys = masks.keys.defined() ? masks.keys.logical_and(cols) : cols;
  result.queries = masks.queries.defined() ? masks.queries.logical_and(rows) : rows;
  return result;
}

}  // namespace

RandomFeatureAttentionImpl::RandomFeatureAttentionImpl(const RandomFeatureAttentionOptions& given)
    : options(given) {
  HONE_CHECK(options.embed_dim > 0 && options.heads > 0 && options.features > 0, kLayer,
             "embed_dim, heads and features of at least 1",
             concat(options.embed_dim, ", ", options.heads, " and ", options.features));
  HONE_CHECK(options.embed_dim % options.heads == 0, kLayer,
             concat("heads that divide ", options.embed_dim), options.heads);
  HONE_CHECK(options.dropout >= 0 && options.dropout < 1, kLayer, "dropout in [0, 1)",
             options.dropout);
  HONE_CHECK(options.kind == FeatureKind::Softmax || options.kind == FeatureKind::Relu, kLayer,
             "a kind of features", static_cast<int>(options.kind));
  HONE_CHECK(std::isfinite(options.eps) && options.eps >= 0, kLayer, "a finite eps >= 0",
             options.eps);
  HONE_REQUIRE(options.eps == 0 || options.kind == FeatureKind::Relu || !options.causal, kLayer,
               "Causal softmax features have no eps, because it would be relative to later keys.");
  HONE_CHECK(options.position_sines >= 0 && options.position_realizations > 0, kLayer,
             "position_sines >= 0 and position_realizations >= 1",
             concat(options.position_sines, " and ", options.position_realizations));
  reset();
}

void RandomFeatureAttentionImpl::reset() {
  const Index dim = options.embed_dim, head_dim = dim / options.heads;
  const double bound = std::sqrt(3.0 / static_cast<double>(dim));
  PhiloxStream random(derived_seed(options.seed, options.layer, kWeights));
  const Tensor in = at::empty({3 * dim, dim}), out = at::empty({dim, dim});
  fill_uniform(in, bound, random);
  fill_uniform(out, bound, random);
  in_proj_weight = register_parameter("in_proj_weight", in);
  out_proj_weight = register_parameter("out_proj_weight", out);
  if (options.bias) {
    in_proj_bias = register_parameter("in_proj_bias", at::zeros({3 * dim}));
    out_proj_bias = register_parameter("out_proj_bias", at::zeros({dim}));
  }
  if (options.position_sines > 0) {
    position = register_module("position",
                               StochasticPosition(StochasticPositionOptions{
                                   .heads = options.heads,
                                   .channels = head_dim,
                                   .sines = options.position_sines,
                                   .realizations = options.position_realizations,
                                   .seed = derived_seed(options.seed, options.layer, kPositions)}));
  }
  const Index width = position ? options.position_realizations : head_dim;
  omega = register_buffer("omega", at::empty({options.features, width}));
  draws = register_buffer("draws", new_counter());
  redraw();
}

void RandomFeatureAttentionImpl::redraw() {
  const at::NoGradGuard no_grad;
  const std::uint32_t drawn = counted(draws);
  omega.copy_(orthogonal_features(omega.size(0), omega.size(1), options.norm,
                                  derived_seed(options.seed, options.layer, kFeatures),
                                  static_cast<std::uint32_t>(drawn)));
  if (position && drawn > 0) position->resample();  // it starts with noise of its own
  set_counter(draws, drawn + 1);
}

RandomFeatureAttentionImpl::Heads RandomFeatureAttentionImpl::project(const Tensor& query,
                                                                      const Tensor& key,
                                                                      const Tensor& value,
                                                                      Index first) {
  const Index dim = options.embed_dim;
  const auto part = [&](const Tensor& x, Index begin, Index count) {
    HONE_CHECK(x.dim() == 3 && x.size(2) == dim, kLayer, concat("[batch, tokens, ", dim, "]"),
               concat(c10::str(x.sizes())));
    const Tensor bias = options.bias ? in_proj_bias.narrow(0, begin * dim, count * dim) : Tensor();
    return at::linear(x, in_proj_weight.narrow(0, begin * dim, count * dim), bias)
        .view({x.size(0), x.size(1), count * options.heads, dim / options.heads});
  };
  Heads heads;
  if (query.is_same(key) && key.is_same(value)) {
    const auto parts = part(query, 0, 3).split(options.heads, 2);
    heads = {parts[0], parts[1], parts[2]};
  } else {
    heads = {part(query, 0, 1), part(key, 1, 1), part(value, 2, 1)};
  }
  if (position) std::tie(heads.q, heads.k) = position->forward(heads.q, heads.k, first);
  return heads;
}

Tensor RandomFeatureAttentionImpl::project_out(const Tensor& heads) const {
  return at::linear(heads.flatten(2), out_proj_weight, out_proj_bias);
}

Tensor RandomFeatureAttentionImpl::forward(const Tensor& query, const Tensor& key,
                                           const Tensor& value, const AttentionMasks& masks) {
  const Heads heads = project(query, key, value, 0);
  const LinearAttentionOptions how{options.kind, options.causal, options.eps};
  const Tensor out = linear_attention(heads.q, heads.k, heads.v, omega, how,
                                      combined(masks, query, key, options.causal));
  return project_out(at::dropout(out, options.dropout, is_training()));
}

Tensor RandomFeatureAttentionImpl::forward_step(const Tensor& x, LinearAttentionState& state) {
  const at::NoGradGuard no_grad;
  const std::uint32_t drawn = counted(draws);
  HONE_REQUIRE(!state.defined() || state.draws == 0 || state.draws == drawn, kLayer,
               "The state is of features that redraw() has replaced: begin with a new one.");
  state.draws = drawn;
  const Heads heads = project(x, x, x, state.position);
  const LinearAttentionOptions how{options.kind, options.causal, options.eps};
  return project_out(linear_attention(heads.q, heads.k, heads.v, omega, how, {}, &state));
}

RandomFeatureAttention from_multihead(const torch::nn::MultiheadAttention& attention,
                                      RandomFeatureAttentionOptions options) {
  if (attention.is_empty()) {
    fail_argument("from_multihead", "a MultiheadAttention", "an empty module holder");
  }
  const auto& given = attention->options;
  const Tensor& weight = attention->in_proj_weight;
  if (!weight.defined() || !weight.numel()) {
    fail_unsupported(kLayer,
                     "Attention whose keys or values have a width of their own is not "
                     "supported.");
  }
  if (attention->bias_k.defined() || attention->bias_v.defined() || given.add_zero_attn()) {
    fail_unsupported(kLayer, "Attention with bias_k, bias_v or add_zero_attn is not supported.");
  }
  options.embed_dim = given.embed_dim();
  options.heads = given.num_heads();
  options.dropout = given.dropout();
  options.bias = given.bias();
  RandomFeatureAttention layer(options);
  layer->to(weight.device(), weight.scalar_type());
  layer->train(attention->is_training());
  const at::NoGradGuard no_grad;
  const auto copy = [](Tensor& to, const Tensor& from) {
    if (!to.defined()) return;
    HONE_REQUIRE(at::isfinite(from).all().item<bool>(), "from_multihead",
                 "The weights have NaN or infinity in them.");
    to.copy_(from);
    to.set_requires_grad(from.requires_grad());
  };
  copy(layer->in_proj_weight, weight);
  copy(layer->in_proj_bias, attention->in_proj_bias);
  copy(layer->out_proj_weight, attention->out_proj->weight);
  copy(layer->out_proj_bias, attention->out_proj->bias);
  return layer;
}

}  // namespace hone::nn
