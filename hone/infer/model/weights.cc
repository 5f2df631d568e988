// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/model/weights.h"

#include <string>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/progress.h"
#include "hone/core/trace.h"

namespace hone::infer {
namespace {

using model_io::ModelFile;
using model_io::NamedMatrix;

class LayerPacker {
 public:
  LayerPacker(const ModelFile& file, WeightPacker& packer) : file_(file), packer_(packer) {}

  std::vector<float> vector(const std::string& name) {
    const NamedMatrix& tensor = file_.tensor(name);
    std::vector<float> values(static_cast<std::size_t>(tensor.matrix.cols));
    decode(tensor.matrix, values);
    return values;
  }

  std::vector<float> optional_vector(const std::string& name) {
    return file_.find(name) == nullptr ? std::vector<float>{} : vector(name);
  }

  Linear linear(const std::string& name) {
    return {packer_.matrix(file_.tensor(name + ".weight")), optional_vector(name + ".bias")};
  }

  Linear gate_up(const std::string& gate, const std::string& up) {
    Linear result{packer_.gate_up(file_.tensor(gate + ".weight"), file_.tensor(up + ".weight")),
                  optional_vector(gate + ".bias")};
    const std::vector<float> up_bias = optional_vector(up + ".bias");
    result.bias.insert(result.bias.end(), up_bias.begin(), up_bias.end());
    return result;
  }

 private:
  const ModelFile& file_;
  WeightPacker& packer_;
};

}  // namespace

Index ModelWeights::bytes() const {
  Index total = head.weight.bytes();
  for (const LayerWeights& layer : layers) {
    for (const Linear* linear :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate_up, &layer.down}) {
      total += linear->weight.bytes();
    }
  }
  return total;
}

ModelWeights pack_weights(const ModelFile& file, WeightPacker& packer) {
  const model_io::Architecture& arch = file.architecture();
  if (arch.family != "llama") {
    fail_unsupported("model", "a model of the llama family", arch.family);
  }
  HONE_TRACE_ZONE("pack weights", {"layers", arch.layers}, {"bytes", file.file_bytes()});
  LayerPacker layers(file, packer);
  Progress progress("loading", arch.layers, "layers");
  ModelWeights weights;
  for (Index i = 0; i < arch.layers; ++i) {
    const std::string prefix = concat("model.layers.", i, ".");
    const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
    LayerWeights layer;
    layer.attention_norm = layers.vector(prefix + "input_layernorm.weight");
    layer.mlp_norm = layers.vector(prefix + "post_attention_layernorm.weight");
    layer.q = layers.linear(attention + "q_proj");
    layer.k = layers.linear(attention + "k_proj");
    layer.v = layers.linear(attention + "v_proj");
    layer.o = layers.linear(attention + "o_proj");
    layer.gate_up = layers.gate_up(mlp + "gate_proj", mlp + "up_proj");
    layer.down = layers.linear(mlp + "down_proj");
    weights.layers.push_back(std::move(layer));
    progress.update(i + 1);
  }
  weights.final_norm = layers.vector("model.norm.weight");
  weights.head = layers.linear(arch.tied_embeddings ? "model.embed_tokens" : "lm_head");
  weights.embedding = packer.embedding(file.tensor("model.embed_tokens.weight"));
  weights.kept = packer.kept();
  return weights;
}

}  // namespace hone::infer
