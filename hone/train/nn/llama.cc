// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/llama.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>

#include <cmath>
#include <memory>
#include <tuple>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/trace.h"
#include "hone/train/nn/init.h"
#include "hone/train/nn/linear.h"
#include "hone/train/nn/recompute.h"

namespace hone::nn {
namespace {

using torch::Tensor;

RopeTable make_rope_table(const model_io::Architecture& architecture) {
  const model_io::RopeSpec& spec = architecture.rope;
  if (spec.rotary_dims != architecture.head_dim ||
      spec.pairing != model_io::RopePairing::HalfSplit) {
    fail_unsupported("Llama", "half-split RoPE over the whole head",
                     concat(spec.rotary_dims, " of ", architecture.head_dim, " dimensions"));
  }
  const model_io::RopeFrequencies frequencies = model_io::rope_frequencies(spec);
  const auto half = static_cast<Index>(frequencies.inverse.size());
  const auto options = torch::TensorOptions().dtype(torch::kFloat);
  RopeTable table{at::empty({architecture.context, half}, options),
                  at::empty({architecture.context, half}, options)};
  float *cos = table.cos.data_ptr<float>(), *sin = table.sin.data_ptr<float>();
  for (Index i = 0; i < architecture.context * half; ++i) {
    const double angle =
        static_cast<double>(i / half) * frequencies.inverse[static_cast<std::size_t>(i % half)];
    cos[i] = static_cast<float>(std::cos(angle) * frequencies.attention_factor);
    sin[i] = static_cast<float>(std::sin(angle) * frequencies.attention_factor);
  }
  return table;
}

}  // namespace

LlamaLayerImpl::LlamaLayerImpl(const model_io::Architecture& architecture, MatmulBackend backend)
    : layout{architecture.heads, architecture.kv_heads, architecture.head_dim} {
  const Index hidden = architecture.hidden_size, inner = architecture.intermediate_size;
  const Index attended = layout.heads * layout.head_dim;
  input_norm = register_parameter("input_norm", at::ones({hidden}));
  mlp_norm = register_parameter("mlp_norm", at::ones({hidden}));
  const auto attention = register_module("self_attn", std::make_shared<torch::nn::Module>());
  const auto mlp = register_module("mlp", std::make_shared<torch::nn::Module>());
  const auto add = [backend](torch::nn::Module& owner, const char* name, Index in, Index out,
                             bool bias) {
    return owner.register_module(name, Slot(Linear(in, out, bias, backend)));
  };
  qkv = add(*attention, "qkv_proj", hidden, layout.width(), architecture.attention_bias);
  o = add(*attention, "o_proj", attended, hidden, architecture.attention_bias);
  gate_up = add(*mlp, "gate_up_proj", hidden, 2 * inner, architecture.mlp_bias);
  down = add(*mlp, "down_proj", inner, hidden, architecture.mlp_bias);
}

LlamaImpl::LlamaImpl(const model_io::Architecture& architecture, std::uint64_t seed,
                     MatmulBackend backend)
    : architecture_(architecture), backend_(resolve(backend)) {
  model_io::validate(architecture_, "Llama");
  if (!architecture_.factored.empty()) {
    fail_unsupported("Llama", "dense layers", architecture_.factored.front().name);
  }
  rope_ = make_rope_table(architecture_);
  register_buffer("rope_cos", rope_.cos);  // so that they follow the module to a device
  register_buffer("rope_sin", rope_.sin);
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
    const LlamaLayer layer(architecture_, backend_);
    draw(layer->qkv, init_std);
    draw(layer->o, residual_std);
    draw(layer->gate_up, init_std);
    draw(layer->down, residual_std);
    layers->push_back(layer.ptr());
    layers_.push_back(layer);
  }
  register_module("layers", layers);
  norm_ = register_parameter("norm", at::ones({hidden}));
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
  HONE_CHECK(ids.dim() == 2 && ids.size(1) <= architecture_.context, "Llama",
             concat("ids [batch, at most ", architecture_.context, "]"),
             concat(ids.dim(), " dimensions, the last of ", ids.size(-1)));
  const Index batch = ids.size(0), positions = ids.size(1), rows = batch * positions;
  const double eps = architecture_.norm_eps;
  // Maps (x, delta) before a layer to (x, delta) after it. The residual stream is their sum.
  const auto run = [batch, positions, rows, eps, rope = rope_](LlamaLayer layer, Tensor x,
                                                               Tensor delta) -> Tensors {
    Tensor normed;
    std::tie(x, normed) = add_rms_norm(x, delta, layer->input_norm, eps);
    const Tensor qkv = layer->qkv->forward(normed).view({batch, positions, -1});
    const Tensor attended = causal_attention(qkv, rope, layer->layout);
    delta = layer->o->forward(attended.view({rows, -1}));
    std::tie(x, normed) = add_rms_norm(x, delta, layer->mlp_norm, eps);
    const Tensor inner = swiglu(layer->gate_up->forward(normed));  // frees gate and up
    return {x, layer->down->forward(inner)};
  };
  Tensor x = at::embedding(embed_tokens_, ids.reshape({rows})), delta;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    HONE_TRACE_ZONE("layer", {"layer", i});
    const LlamaLayer& layer = layers_[i];
    const bool recomputed = recompute_every_ > 0 && static_cast<Index>(i) % recompute_every_ == 0;
    const Tensors out =
        recomputed ? recompute([run, layer](const Tensors& in) { return run(layer, in[0], in[1]); },
                               {x, delta})
                   : run(layer, x, delta);
    x = out[0];
    delta = out[1];
  }
  return add_rms_norm(x, delta, norm_, eps).second;
}

torch::Tensor LlamaImpl::forward(const torch::Tensor& ids) const {
  const Tensor logits = linear(hidden(ids), head(), {}, backend_);
  return logits.view({ids.size(0), ids.size(1), -1});
}

torch::Tensor LlamaImpl::loss_sum(const torch::Tensor& ids, const torch::Tensor& targets) const {
  HONE_CHECK(targets.sizes() == ids.sizes(), "Llama",
             concat("targets of the shape of ids, ", c10::str(ids.sizes())),
             c10::str(targets.sizes()));
  return linear_cross_entropy(hidden(ids), head(), targets.reshape({-1}), backend_);
}

std::vector<NamedTensor> LlamaImpl::hugging_face_tensors() const {
  std::vector<NamedTensor> out;
  const auto add = [&out](std::string name, const Tensor& tensor) {
    if (tensor.defined()) out.push_back({std::move(name), tensor.detach()});
  };
  // Adds the consecutive row blocks of a dense product, or what another layer has.
  const auto add_product = [&add](const std::string& prefix, const char* product, const Slot& slot,
                                  const std::vector<std::pair<const char*, Index>>& parts) {
    const std::shared_ptr<torch::nn::Module> layer = slot->layer().ptr();
    const auto* dense = layer->as<torch::nn::LinearImpl>();
    if (dense == nullptr) {
      for (const NamedTensor& own : parameters_by_path(*layer)) {
        add(concat(prefix, product, ".", own.name), own.value);
      }
      return;
    }
    Index first = 0;
    for (const auto& [name, rows] : parts) {
      add(concat(prefix, name, ".weight"), dense->weight.narrow(0, first, rows));
      if (dense->bias.defined()) {
        add(concat(prefix, name, ".bias"), dense->bias.narrow(0, first, rows));
      }
      first += rows;
    }
  };
  add("model.embed_tokens.weight", embed_tokens_);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LlamaLayer& layer = layers_[i];
    const std::string prefix = concat("model.layers.", i, ".");
    const HeadLayout& layout = layer->layout;
    const Index q_rows = layout.heads * layout.head_dim,
                kv_rows = layout.kv_heads * layout.head_dim;
    const Index inner = architecture_.intermediate_size, hidden = architecture_.hidden_size;
    add(prefix + "input_layernorm.weight", layer->input_norm);
    add_product(prefix + "self_attn.", "qkv_proj", layer->qkv,
                {{"q_proj", q_rows}, {"k_proj", kv_rows}, {"v_proj", kv_rows}});
    add_product(prefix + "self_attn.", "o_proj", layer->o, {{"o_proj", hidden}});
    add(prefix + "post_attention_layernorm.weight", layer->mlp_norm);
    add_product(prefix + "mlp.", "gate_up_proj", layer->gate_up,
                {{"gate_proj", inner}, {"up_proj", inner}});
    add_product(prefix + "mlp.", "down_proj", layer->down, {{"down_proj", hidden}});
  }
  add("model.norm.weight", norm_);
  add("lm_head.weight", lm_head_);
  return out;
}

}  // namespace hone::nn
