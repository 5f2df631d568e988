// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/model/weights.h"

#include <string>
#include <utility>

#include "hone/core/buffer.h"
#include "hone/core/check.h"
#include "hone/core/progress.h"
#include "hone/core/trace.h"

namespace hone::infer {
namespace {

using model_io::ModelFile;
using model_io::NamedMatrix;

bool same_format(const StoredMatrix& a, const StoredMatrix& b) {
  return a.layout == b.layout && a.dtype == b.dtype && a.block_type == b.block_type &&
         a.quant.spec == b.quant.spec && a.act_int8 == b.act_int8;
}

StoredMatrix widen(const StoredMatrix& matrix, Buffer& memory) {
  memory = Buffer(matrix.rows * matrix.cols * static_cast<Index>(sizeof(float)));
  decode(matrix, {memory.as<float>(), static_cast<std::size_t>(matrix.rows * matrix.cols)});
  StoredMatrix wide;
  wide.rows = matrix.rows;
  wide.cols = matrix.cols;
  wide.bytes = memory.span();
  return wide;
}

class Packer {
 public:
  Packer(const ModelFile& file, Executor& executor) : file_(file), executor_(executor) {}

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
    const NamedMatrix& tensor = file_.tensor(name + ".weight");
    Linear result{kernels::pack(tensor.matrix, executor_), optional_vector(name + ".bias")};
    file_.drop_pages(tensor);
    return result;
  }

  Linear gate_up(const std::string& gate_name, const std::string& up_name) {
    const NamedMatrix& gate = file_.tensor(gate_name + ".weight");
    const NamedMatrix& up = file_.tensor(up_name + ".weight");
    Linear result{pack_pair(gate.matrix, up.matrix), optional_vector(gate_name + ".bias")};
    const std::vector<float> up_bias = optional_vector(up_name + ".bias");
    result.bias.insert(result.bias.end(), up_bias.begin(), up_bias.end());
    file_.drop_pages(gate);
    file_.drop_pages(up);
    return result;
  }

 private:
  // If the file stores gate and up in different formats, both are converted to f32.
  kernels::PackedMatrix pack_pair(const StoredMatrix& gate, const StoredMatrix& up) {
    if (same_format(gate, up)) return kernels::pack_gate_up(gate, up, executor_);
    Buffer wide_gate, wide_up;
    return kernels::pack_gate_up(widen(gate, wide_gate), widen(up, wide_up), executor_);
  }

  const ModelFile& file_;
  Executor& executor_;
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

ModelWeights pack_weights(const ModelFile& file, Executor& executor) {
  const model_io::Architecture& arch = file.architecture();
  if (arch.family != "llama") {
    fail_unsupported("model", "a model of the llama family", arch.family);
  }
  HONE_TRACE_ZONE("pack weights", {"layers", arch.layers}, {"bytes", file.file_bytes()});
  Packer packer(file, executor);
  Progress progress("loading", arch.layers, "layers");
  ModelWeights weights;
  for (Index i = 0; i < arch.layers; ++i) {
    const std::string prefix = concat("model.layers.", i, ".");
    const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
    LayerWeights layer;
    layer.attention_norm = packer.vector(prefix + "input_layernorm.weight");
    layer.mlp_norm = packer.vector(prefix + "post_attention_layernorm.weight");
    layer.q = packer.linear(attention + "q_proj");
    layer.k = packer.linear(attention + "k_proj");
    layer.v = packer.linear(attention + "v_proj");
    layer.o = packer.linear(attention + "o_proj");
    layer.gate_up = packer.gate_up(mlp + "gate_proj", mlp + "up_proj");
    layer.down = packer.linear(mlp + "down_proj");
    weights.layers.push_back(std::move(layer));
    progress.update(i + 1);
  }
  weights.final_norm = packer.vector("model.norm.weight");
  weights.head = packer.linear(arch.tied_embeddings ? "model.embed_tokens" : "lm_head");
  weights.embedding = file.tensor("model.embed_tokens.weight").matrix;
  return weights;
}

}  // namespace hone::infer
