// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "hone/infer/model/weight_packer.h"
#include "hone/kernels/gemm/packed_matrix.h"
#include "hone/model_io/model_file.h"

namespace hone::infer {

// One product of a layer: packed weights and, if the model has one, a bias.
struct Linear {
  kernels::PackedMatrix weight;
  std::vector<float> bias;  // empty if none

  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
};

struct LayerWeights {
  std::vector<float> attention_norm, mlp_norm;
  Linear q, k, v, o;
  Linear gate_up;  // packed interleaved; the bias of gate, then that of up
  Linear down;
};

// All weights of a Llama-family model in the order in which kernels read them. The embedding stays
// in the file, and rows are decoded one token at a time. Panels may lie in a PackedFile.
struct ModelWeights {
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;
  Linear head;
  EmbeddingRows embedding;
  std::shared_ptr<const PackedFile> packed;  // null if the panels are in memory
  std::vector<model_io::KeptTensor> kept;    // what --weights did not quantize

  // The number of packed bytes, all of which a decode step reads.
  Index bytes() const;
};

// The weights of `file`, which must outlive the result, with the matrices that `packer` gives.
ModelWeights pack_weights(const model_io::ModelFile& file, WeightPacker& packer);

}  // namespace hone::infer
