// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/model/weights.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/core/progress.h"
#include "hone/infer/model/factors.h"
#include "hone/model_io/tensor_plan.h"

namespace hone::infer {
namespace {

using model_io::ModelFile;
using model_io::NamedMatrix;

class LayerPacker {
 public:
  // Shows no progress if it is null.
  LayerPacker(const ModelFile& file, WeightPacker& packer, Progress* progress)
      : file_(file), packer_(packer), progress_(progress) {}

  std::vector<float> vector(const std::string& name) {
    const NamedMatrix& tensor = file_.tensor(name);
    std::vector<float> values(static_cast<std::size_t>(tensor.matrix.cols));
    decode(tensor.matrix, values);
    note_loaded(1);
    return values;
  }

  std::vector<float> optional_vector(const std::string& name) {
    return file_.find(name) == nullptr ? std::vector<float>{} : vector(name);
  }

  // Empty if the model has no such norm.
  Norm norm(const std::string& name) {
    Norm result{optional_vector(name + ".weight"), optional_vector(name + ".bias")};
    const auto offset = static_cast<float>(file_.architecture().norm_offset);
    for (float& weight : result.weight) weight += offset;
    return result;
  }

  Linear linear(const std::string& name) {
    kernels::PackedMatrix weight = packer_.matrix(file_.tensor(name + ".weight"));
    note_loaded(1);
    return {std::move(weight), optional_vector(name + ".bias")};
  }

  Linear gate_up(const std::string& gate, const std::string& up) {
    if (file_.architecture().mlp == model_io::MlpKind::GeluTanh) return linear(up);
    Linear result{packer_.gate_up(file_.tensor(gate + ".weight"), file_.tensor(up + ".weight")),
                  optional_vector(gate + ".bias")};
    note_loaded(2);
    const std::vector<float> up_bias = optional_vector(up + ".bias");
    result.bias.insert(result.bias.end(), up_bias.begin(), up_bias.end());
    return result;
  }

 private:
  void note_loaded(Index tensors) {
    loaded_ += tensors;
    if (progress_ != nullptr) progress_->update(loaded_);
  }

  const ModelFile& file_;
  WeightPacker& packer_;
  Progress* progress_;
  Index loaded_ = 0;
};

// The list that pack_weights() walks: what fills each member of a layer. A product of two names is
// packed interleaved.
struct LinearSource {
  Linear LayerWeights::*role;
  std::string_view name, second = {};
};
constexpr std::array<LinearSource, 6> kLinears{
    {{&LayerWeights::q, "self_attn.q_proj"},
     {&LayerWeights::k, "self_attn.k_proj"},
     {&LayerWeights::v, "self_attn.v_proj"},
     {&LayerWeights::o, "self_attn.o_proj"},
     {&LayerWeights::gate_up, "mlp.gate_proj", "mlp.up_proj"},
     {&LayerWeights::down, "mlp.down_proj"}}};

struct NormSource {
  Norm LayerWeights::*role;
  std::string_view name;
};
constexpr std::array<NormSource, 6> kNorms{
    {{&LayerWeights::attention_norm, "input_layernorm"},
     {&LayerWeights::attention_post_norm, "self_attn.output_norm"},
     {&LayerWeights::mlp_norm, "post_attention_layernorm"},
     {&LayerWeights::mlp_post_norm, "mlp.output_norm"},
     {&LayerWeights::q_norm, "self_attn.q_norm"},
     {&LayerWeights::k_norm, "self_attn.k_norm"}}};

// A factored layer replaces the linears of one product of layer_products(), in this order.
struct ProductTarget {
  Factor LayerWeights::*factor;
  std::vector<Linear LayerWeights::*> linears;
};
const std::array<ProductTarget, 4>& product_targets() {
  static const std::array<ProductTarget, 4> kTargets{
      {{&LayerWeights::qkv_factor, {&LayerWeights::q, &LayerWeights::k, &LayerWeights::v}},
       {&LayerWeights::o_factor, {&LayerWeights::o}},
       {&LayerWeights::gate_up_factor, {&LayerWeights::gate_up}},
       {&LayerWeights::down_factor, {&LayerWeights::down}}}};
  return kTargets;
}

void pack_factors(const Factors& factors, const ProductTarget& target, Executor& executor,
                  LayerWeights& weights) {
  weights.*target.factor = kernels::pack(factors.a, executor);
  if (factors.b.size() > target.linears.size()) {  // gate and up in one
    std::vector<float> bias = factors.biases[0];
    bias.insert(bias.end(), factors.biases[1].begin(), factors.biases[1].end());
    weights.*target.linears.front() = {kernels::pack_gate_up(factors.b[0], factors.b[1], executor),
                                       std::move(bias)};
    return;
  }
  for (std::size_t i = 0; i < target.linears.size(); ++i)
    weights.*target.linears[i] = {kernels::pack(factors.b[i], executor), factors.biases[i]};
}

// Packs the products of a layer that are factored.
void pack_factored(const ModelFile& file, Index layer, Executor& executor, LayerWeights& weights) {
  const model_io::Architecture& arch = file.architecture();
  if (arch.factored.empty()) return;
  const std::vector<model_io::LayerProduct> products = model_io::layer_products(arch, layer);
  for (std::size_t i = 0; i < products.size(); ++i) {
    const std::string name = model_io::layer_name(layer, products[i].name);
    for (const model_io::FactoredLayer& factored : arch.factored) {
      if (factored.name != name) continue;
      if (factored.mode == model_io::FactoredLayer::Mode::Projected) {  // its parts are linears
        weights.*product_targets()[i].factor =
            kernels::pack(file.tensor(name + ".a").matrix, executor);
      } else {
        pack_factors(read_factors(file, factored, products[i], executor), product_targets()[i],
                     executor, weights);
      }
    }
  }
}

LayerWeights pack_one(const ModelFile& file, LayerPacker& packer, Index layer, Executor& executor) {
  LayerWeights weights;
  const auto name = [&](std::string_view part) { return model_io::layer_name(layer, part); };
  for (const NormSource& norm : kNorms) weights.*norm.role = packer.norm(name(norm.name));
  pack_factored(file, layer, executor, weights);
  for (const LinearSource& linear : kLinears) {
    if ((weights.*linear.role).weight.rows() > 0) continue;  // factored
    weights.*linear.role = linear.second.empty()
                               ? packer.linear(name(linear.name))
                               : packer.gate_up(name(linear.name), name(linear.second));
  }
  return weights;
}

// Everything but the layers.
ModelWeights pack_outer(const ModelFile& file, LayerPacker& packer, WeightPacker& weight_packer) {
  const model_io::Architecture& arch = file.architecture();
  ModelWeights weights;
  weights.final_norm = packer.norm("model.norm");
  weights.head = packer.linear(arch.tied_embeddings ? "model.embed_tokens" : "lm_head");
  weights.embedding = weight_packer.embedding(file.tensor("model.embed_tokens.weight"));
  if (arch.learned_positions)
    weights.positions = file.tensor("model.embed_positions.weight").matrix;
  return weights;
}

}  // namespace

Index ModelWeights::bytes() const {
  Index total = head.weight.bytes();
  for (const LayerWeights& layer : layers) {
    for (const LinearSource& linear : kLinears) total += (layer.*linear.role).weight.bytes();
    for (const Factor* factor :
         {&layer.qkv_factor, &layer.o_factor, &layer.gate_up_factor, &layer.down_factor}) {
      total += factor->bytes();
    }
  }
  return total;
}

ModelWeights pack_weights(const ModelFile& file, WeightPacker& packer, Executor& executor) {
  const model_io::Architecture& arch = file.architecture();
  HONE_TRACE_ZONE("pack weights", {"layers", arch.layers}, {"bytes", file.file_bytes()});
  Progress progress("loading", std::ssize(file.tensors()), "tensors");
  LayerPacker layers(file, packer, &progress);
  std::vector<LayerWeights> packed;
  for (Index i = 0; i < arch.layers; ++i) packed.push_back(pack_one(file, layers, i, executor));
  ModelWeights weights = pack_outer(file, layers, packer);
  weights.layers = std::move(packed);
  weights.kept = packer.kept();
  return weights;
}

ModelWeights pack_outer_weights(const ModelFile& file, WeightPacker& packer) {
  LayerPacker outer(file, packer, nullptr);
  ModelWeights weights = pack_outer(file, outer, packer);
  weights.layers.resize(static_cast<std::size_t>(file.architecture().layers));
  return weights;
}

LayerWeights pack_layer(const ModelFile& file, Index layer, WeightPacker& packer,
                        Executor& executor) {
  LayerPacker layers(file, packer, nullptr);
  return pack_one(file, layers, layer, executor);
}

}  // namespace hone::infer
