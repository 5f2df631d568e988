// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/llama.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>

#include <cmath>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/model_io/tensor_plan.h"
#include "hone/train/nn/init.h"
#include "hone/train/nn/linear.h"
#include "hone/train/nn/recompute.h"

namespace hone::nn {
namespace {

using torch::Tensor;

RopeTable make_rope_table(const model_io::RopeSpec& spec, Index context) {
  const model_io::RopeFrequencies frequencies = model_io::rope_frequencies(spec);
  const auto half = static_cast<Index>(frequencies.inverse.size());
  const auto options = torch::TensorOptions().dtype(torch::kFloat);
  RopeTable table{at::empty({context, half}, options), at::empty({context, half}, options)};
  float *cos = table.cos.data_ptr<float>(), *sin = table.sin.data_ptr<float>();
  for (Index i = 0; i < context * half; ++i) {
    const double angle =
        static_cast<double>(i / half) * frequencies.inverse[static_cast<std::size_t>(i % half)];
    cos[i] = static_cast<float>(std::cos(angle) * frequencies.attention_factor);
    sin[i] = static_cast<float>(std::sin(angle) * frequencies.attention_factor);
  }
  return table;
}

Gate gate_of(model_io::MlpKind kind) {
  return kind == model_io::MlpKind::SiluGate ? Gate::Silu : Gate::GeluTanh;
}

// The additive masks of the windows that are shorter than a text of so many positions.
std::map<Index, Tensor> make_masks(const model_io::Architecture& architecture, Index positions,
                                   const torch::TensorOptions& options) {
  std::map<Index, Tensor> out;
  for (Index layer = 0; layer < architecture.layers; ++layer) {
    const Index window = architecture.window_of(layer);
    if (window == 0 || window >= positions || out.contains(window)) continue;
    out[window] = window_mask(positions, window, options);
  }
  return out;
}

}  // namespace

void check_trainable(const model_io::Architecture& a, const std::string& where) {
  const auto need = [&where](bool holds, std::string_view trait, std::string_view got) {
    if (!holds) fail_unsupported(where, concat("a model to train with ", trait), got);
  };
  need(a.norm == model_io::NormKind::Rms, "RMSNorm", "LayerNorm");
  need(a.mlp != model_io::MlpKind::GeluTanh, "a gate in its MLP", "an MLP without one");
  need(!a.learned_positions, "RoPE", "learned positions");
  need(a.attention_soft_cap == 0, "scores of attention without a soft cap",
       concat(a.attention_soft_cap));
  need(a.logit_soft_cap == 0, "logits without a soft cap", concat(a.logit_soft_cap));
  need(a.has_uniform_widths(), "layers of one shape", "layers of different widths");
  need(a.rope.rotary_dims == a.head_dim,
       concat("RoPE over all ", a.head_dim, " dimensions of a head"), concat(a.rope.rotary_dims));
  need(a.rope.pairing == model_io::RopePairing::HalfSplit, "half-split RoPE", "adjacent pairs");
}

LlamaLayerImpl::LlamaLayerImpl(const model_io::Architecture& a, Index index, const RopeTable& rope,
                               MatmulBackend backend)
    : layout{a.heads, a.kv_heads, a.head_dim},
      window(a.window_of(index)),
      rope_(rope),
      norm_eps_(a.norm_eps),
      norm_offset_(a.norm_offset),
      // The operators' own scale is 1/√head_dim.
      scale_(a.attention_scale == 0 && !a.inverse_layer_scale ? 0 : a.score_scale(index)),
      gate_(gate_of(a.mlp)) {
  const auto add_norm = [&](torch::nn::Module& owner, const char* name, Index size) {
    return owner.register_parameter(name, at::full({size}, 1 - norm_offset_, at::kFloat));
  };
  if (a.pre_norms) {
    input_norm = add_norm(*this, "input_norm", a.hidden_size);
    mlp_norm = add_norm(*this, "mlp_norm", a.hidden_size);
  }
  const auto attention = register_module("self_attn", std::make_shared<torch::nn::Module>());
  const auto mlp = register_module("mlp", std::make_shared<torch::nn::Module>());
  const auto products = model_io::layer_products(a, index);
  const auto add = [&](torch::nn::Module& owner, const char* name, std::size_t i) {
    return owner.register_module(
        name, Slot(Linear(products[i].inputs, products[i].outputs, products[i].bias, backend)));
  };
  qkv = add(*attention, "qkv_proj", 0);
  o = add(*attention, "o_proj", 1);
  gate_up = add(*mlp, "gate_up_proj", 2);
  down = add(*mlp, "down_proj", 3);
  if (a.qk_norm != model_io::QkNorm::None) {
    const bool by_head = a.qk_norm == model_io::QkNorm::Head;
    q_norm = add_norm(*attention, "q_norm", (by_head ? 1 : a.heads) * a.head_dim);
    k_norm = add_norm(*attention, "k_norm", (by_head ? 1 : a.kv_heads) * a.head_dim);
  }
  if (a.post_norms) {
    attention_output_norm = add_norm(*attention, "output_norm", a.hidden_size);
    mlp_output_norm = add_norm(*mlp, "output_norm", a.hidden_size);
  }
}

// What a norm multiplies by.
Tensor LlamaLayerImpl::gain(const Tensor& norm) const {
  return norm.defined() && norm_offset_ != 0 ? norm + norm_offset_ : norm;
}

// (x + delta, its norm); without a norm twice the sum.
std::pair<Tensor, Tensor> LlamaLayerImpl::add_and_norm(const Tensor& x, const Tensor& delta,
                                                       const Tensor& norm) const {
  if (norm.defined()) return add_rms_norm(x, delta, gain(norm), norm_eps_);
  const Tensor sum = delta.defined() ? x + delta : x;
  return {sum, sum};
}

// The norm of what a block yields, if it has one.
Tensor LlamaLayerImpl::normed(const Tensor& x, const Tensor& norm) const {
  return norm.defined() ? add_rms_norm(x, {}, gain(norm), norm_eps_).second : x;
}

std::pair<Tensor, Tensor> LlamaLayerImpl::forward(Tensor x, Tensor delta, Index positions,
                                                  const Tensor& mask) {
  const Index rows = x.size(0);
  Tensor read;
  std::tie(x, read) = add_and_norm(x, delta, input_norm);
  const Tensor heads = qkv->forward(read).view({rows / positions, positions, -1});
  const Tensor attended = causal_attention(heads, rope_, layout,
                                           {.q_norm = gain(q_norm),
                                            .k_norm = gain(k_norm),
                                            .norm_eps = norm_eps_,
                                            .scale = scale_,
                                            .mask = mask});
  delta = normed(o->forward(attended.view({rows, -1})), attention_output_norm);
  std::tie(x, read) = add_and_norm(x, delta, mlp_norm);
  const Tensor inner = glu(gate_up->forward(read), gate_);  // frees gate and up
  return {x, normed(down->forward(inner), mlp_output_norm)};
}

LlamaImpl::LlamaImpl(const model_io::Architecture& architecture, std::uint64_t seed,
                     MatmulBackend backend)
    : architecture_(architecture), backend_(resolve(backend)) {
  model_io::validate(architecture_, "Llama");
  check_trainable(architecture_, "Llama");
  if (!architecture_.factored.empty()) {
    fail_unsupported("Llama", "dense layers", architecture_.factored.front().name);
  }
  const auto add_rope = [this](const std::string& name, const model_io::RopeSpec& spec) {
    RopeTable table = make_rope_table(spec, architecture_.context);
    register_buffer(name + "_cos", table.cos);  // so that they follow the module to a device
    register_buffer(name + "_sin", table.sin);
    return table;
  };
  const RopeTable rope = add_rope("rope", architecture_.rope);
  const RopeTable window_rope =
      architecture_.window_rope ? add_rope("window_rope", *architecture_.window_rope) : rope;
  const Index vocab = architecture_.vocab_size, hidden = architecture_.hidden_size;
  embed_tokens_ = register_parameter("embed_tokens", at::zeros({vocab, hidden}));
  const double init_std = 1 / std::sqrt(static_cast<double>(hidden));
  const double residual_std = init_std / std::sqrt(2.0 * static_cast<double>(architecture_.layers));
  std::uint64_t stream = 0;
  fill_normal(embed_tokens_.detach(), init_std, seed, stream++);
  const auto draw = [seed, &stream](const Slot& slot, double std) {
    fill_normal(slot->layer().get<LinearImpl>().weight.detach(), std, seed, stream++);
  };
  torch::nn::ModuleList layers;
  for (Index i = 0; i < architecture_.layers; ++i) {
    const LlamaLayer layer(architecture_, i, architecture_.window_of(i) > 0 ? window_rope : rope,
                           backend_);
    draw(layer->qkv, init_std);
    draw(layer->o, residual_std);
    draw(layer->gate_up, init_std);
    draw(layer->down, residual_std);
    layers->push_back(layer.ptr());
    layers_.push_back(layer);
  }
  register_module("layers", layers);
  norm_ = register_parameter("norm", at::full({hidden}, 1 - architecture_.norm_offset, at::kFloat));
  if (!architecture_.tied_embeddings) {
    lm_head_ = register_parameter("lm_head", at::zeros({vocab, hidden}));
    fill_normal(lm_head_.detach(), init_std, seed, stream++);
  }
}

void LlamaImpl::set_recompute_every(Index k) {
  HONE_CHECK(k >= 0, "Llama", "k >= 0 for recomputing every k-th layer", k);
  recompute_every_ = k;
}

torch::Tensor LlamaImpl::hidden(const torch::Tensor& ids) const {
  HONE_CHECK(ids.dim() == 2 && ids.size(1) > 0 && ids.size(1) <= architecture_.context, "Llama",
             concat("ids [batch, 1 to ", architecture_.context, "]"),
             concat(ids.dim(), " dimensions, the last of ", ids.size(-1)));
  const Index positions = ids.size(1);
  const std::map<Index, Tensor> masks =
      make_masks(architecture_, positions, embed_tokens_.options());
  Tensor x = at::embedding(embed_tokens_, ids.reshape({-1})), delta;
  if (architecture_.embedding_scale != 1) x = x * architecture_.embedding_scale;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    HONE_TRACE_ZONE("layer", {"layer", i});
    const auto mask = masks.find(layers_[i]->window);
    auto run = [positions, layer = layers_[i],
                mask = mask == masks.end() ? Tensor()
                                           : mask->second](const Tensors& in) mutable -> Tensors {
      auto [sum, yielded] = layer->forward(in[0], in[1], positions, mask);
      return {sum, yielded};
    };
    const bool recomputed = recompute_every_ > 0 && static_cast<Index>(i) % recompute_every_ == 0;
    const Tensors out = recomputed ? recompute(run, {x, delta}) : run({x, delta});
    x = out[0];
    delta = out[1];
  }
  const double offset = architecture_.norm_offset;
  return add_rms_norm(x, delta, offset == 0 ? norm_ : norm_ + offset, architecture_.norm_eps)
      .second;
}

torch::Tensor LlamaImpl::forward(const torch::Tensor& ids) const {
  return logits_of(hidden(ids)).view({ids.size(0), ids.size(1), -1});
}

torch::Tensor LlamaImpl::logits_of(const torch::Tensor& rows) const {
  return linear(rows, head(), {}, backend_);
}

torch::Tensor LlamaImpl::loss_sum(const torch::Tensor& ids, const torch::Tensor& targets) const {
  HONE_CHECK(targets.sizes() == ids.sizes(), "Llama",
             concat("targets of the shape of ids, ", c10::str(ids.sizes())),
             c10::str(targets.sizes()));
  return linear_cross_entropy(hidden(ids), head(), targets.reshape({-1}), backend_);
}

std::vector<NamedTensor> LlamaImpl::model_tensors() const {
  std::vector<NamedTensor> out;
  const auto add = [&out](std::string name, const Tensor& tensor) {
    if (tensor.defined()) out.push_back({std::move(name), tensor.detach()});
  };
  // Adds the consecutive row blocks of a dense product, or what another layer has.
  const auto add_product = [&add](Index index, const model_io::LayerProduct& product,
                                  const Slot& slot) {
    const std::shared_ptr<torch::nn::Module> layer = slot->layer().ptr();
    const auto* dense = layer->as<torch::nn::LinearImpl>();
    if (dense == nullptr) {
      for (const NamedTensor& own : parameters_by_path(*layer)) {
        add(concat(model_io::layer_name(index, product.name), ".", own.name), own.value);
      }
      return;
    }
    Index first = 0;
    for (const auto& [part, rows] : product.parts) {
      const std::string name = model_io::layer_name(index, part);
      add(name + ".weight", dense->weight.narrow(0, first, rows));
      if (dense->bias.defined()) add(name + ".bias", dense->bias.narrow(0, first, rows));
      first += rows;
    }
  };
  add("model.embed_tokens.weight", embed_tokens_);
  for (Index i = 0; i < architecture_.layers; ++i) {
    const LlamaLayer& layer = layers_[static_cast<std::size_t>(i)];
    const auto products = model_io::layer_products(architecture_, i);
    const auto add_norm = [&](const char* name, const Tensor& weight) {
      add(model_io::layer_name(i, name) + ".weight", weight);
    };
    add_norm("input_layernorm", layer->input_norm);
    add_product(i, products[0], layer->qkv);
    add_norm("self_attn.q_norm", layer->q_norm);
    add_norm("self_attn.k_norm", layer->k_norm);
    add_product(i, products[1], layer->o);
    add_norm("self_attn.output_norm", layer->attention_output_norm);
    add_norm("post_attention_layernorm", layer->mlp_norm);
    add_product(i, products[2], layer->gate_up);
    add_product(i, products[3], layer->down);
    add_norm("mlp.output_norm", layer->mlp_output_norm);
  }
  add("model.norm.weight", norm_);
  add("lm_head.weight", lm_head_);
  return out;
}

}  // namespace hone::nn
