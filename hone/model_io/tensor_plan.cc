// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/tensor_plan.h"

#include <charconv>
#include <unordered_map>

#include "hone/core/check.h"

namespace hone::model_io {
namespace {

constexpr std::string_view kLayers = "model.layers.";

// Collects the tensors of an architecture.
class Planner {
 public:
  explicit Planner(const Architecture& a) : a_(a) {
    for (const FactoredLayer& layer : a.factored) factored_.emplace(layer.name, &layer);
  }

  void matrix(std::string name, Index rows, Index cols) {
    plan_.push_back({std::move(name), rows, cols, false});
  }
  void vector(std::string name, Index size) { plan_.push_back({std::move(name), 1, size, true}); }

  void norm(const std::string& name, Index size) {
    vector(name + ".weight", size);
    if (a_.norm == NormKind::Layer) vector(name + ".bias", size);
  }

  void product(Index layer, const LayerProduct& planned) {
    const std::string name = layer_name(layer, planned.name);
    Index inputs = planned.inputs;
    if (const auto found = factored_.find(name); found != factored_.end()) {
      const FactoredLayer& thin = *found->second;
      if (thin.mode != FactoredLayer::Mode::Projected) return factors(name, thin, planned);
      matrix(name + ".a", thin.rank, inputs);
      inputs = thin.rank;
    }
    for (const auto& [part, rows] : planned.parts) {
      matrix(layer_name(layer, part) + ".weight", rows, inputs);
      if (planned.bias) vector(layer_name(layer, part) + ".bias", rows);
    }
  }

  void attention(Index layer, const std::vector<LayerProduct>& products) {
    if (a_.pre_norms) norm(layer_name(layer, "input_layernorm"), a_.hidden_size);
    product(layer, products[0]);
    if (a_.qk_norm != QkNorm::None) {
      const bool whole = a_.qk_norm == QkNorm::Row;
      norm(layer_name(layer, "self_attn.q_norm"), (whole ? a_.heads_of(layer) : 1) * a_.head_dim);
      norm(layer_name(layer, "self_attn.k_norm"), (whole ? a_.kv_heads : 1) * a_.head_dim);
    }
    product(layer, products[1]);
    if (a_.post_norms) norm(layer_name(layer, "self_attn.output_norm"), a_.hidden_size);
  }

  void mlp(Index layer, const std::vector<LayerProduct>& products) {
    if (a_.pre_norms) norm(layer_name(layer, "post_attention_layernorm"), a_.hidden_size);
    product(layer, products[2]);
    product(layer, products[3]);
    if (a_.post_norms) norm(layer_name(layer, "mlp.output_norm"), a_.hidden_size);
  }

  std::vector<PlannedTensor> take() { return std::move(plan_); }

 private:
  void factors(const std::string& name, const FactoredLayer& thin, const LayerProduct& planned) {
    const bool is_sketched = thin.mode == FactoredLayer::Mode::Sketched;
    matrix(name + (is_sketched ? ".s1" : ".a"), thin.width(), planned.inputs);
    matrix(name + (is_sketched ? ".s2" : ".b"), thin.width(), planned.outputs);
    if (planned.bias) vector(name + ".bias", planned.outputs);
  }

  const Architecture& a_;
  std::unordered_map<std::string_view, const FactoredLayer*> factored_;
  std::vector<PlannedTensor> plan_;
};

}  // namespace

std::string layer_name(Index layer, std::string_view part) {
  return concat(kLayers, layer, ".", part);
}

Index layer_of(std::string_view name) {
  if (!name.starts_with(kLayers)) return -1;
  name.remove_prefix(kLayers.size());
  const char* const end = name.data() + name.size();
  Index layer = -1;
  const auto [rest, error] = std::from_chars(name.data(), end, layer);
  return error == std::errc() && rest != end && *rest == '.' ? layer : -1;
}

std::vector<LayerProduct> layer_products(const Architecture& a, Index layer) {
  const Index q = a.heads_of(layer) * a.head_dim, kv = a.kv_heads * a.head_dim;
  const Index inner = a.intermediate_of(layer);
  LayerProduct first{.name = "mlp.gate_up_proj",
                     .inputs = a.hidden_size,
                     .outputs = 2 * inner,
                     .bias = a.mlp_bias,
                     .parts = {{"mlp.gate_proj", inner}, {"mlp.up_proj", inner}}};
  if (a.mlp == MlpKind::GeluTanh) {
    first.name = "mlp.up_proj";
    first.outputs = inner;
    first.parts.erase(first.parts.begin());
  }
  return {{.name = "self_attn.qkv_proj",
           .inputs = a.hidden_size,
           .outputs = q + 2 * kv,
           .bias = a.attention_bias,
           .parts = {{"self_attn.q_proj", q}, {"self_attn.k_proj", kv}, {"self_attn.v_proj", kv}}},
          {.name = "self_attn.o_proj",
           .inputs = q,
           .outputs = a.hidden_size,
           .bias = a.attention_bias && a.output_bias,
           .parts = {{"self_attn.o_proj", a.hidden_size}}},
          first,
          {.name = "mlp.down_proj",
           .inputs = inner,
           .outputs = a.hidden_size,
           .bias = a.mlp_bias,
           .parts = {{"mlp.down_proj", a.hidden_size}}}};
}

std::vector<PlannedTensor> plan_tensors(const Architecture& a) {
  Planner planner(a);
  planner.matrix("model.embed_tokens.weight", a.vocab_size, a.hidden_size);
  if (a.learned_positions) planner.matrix("model.embed_positions.weight", a.context, a.hidden_size);
  for (Index layer = 0; layer < a.layers; ++layer) {
    const std::vector<LayerProduct> products = layer_products(a, layer);
    planner.attention(layer, products);
    planner.mlp(layer, products);
  }
  planner.norm("model.norm", a.hidden_size);
  if (!a.tied_embeddings) planner.matrix("lm_head.weight", a.vocab_size, a.hidden_size);
  return planner.take();
}

}  // namespace hone::model_io
