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

// Weights of a norm, with the architecture's norm_offset added; empty if the model has none here.
struct Norm {
  std::vector<float> weight, bias;  // without bias: RMSNorm

  bool is_empty() const { return weight.empty(); }
};

// The first of two factors, y = B (A x), where products that share x share A; without rows if the
// products are dense. Then the Linear's weights are B.
using Factor = kernels::PackedMatrix;

struct LayerWeights {
  Norm attention_norm, mlp_norm;            // of what a block reads
  Norm attention_post_norm, mlp_post_norm;  // of what it yields
  Norm q_norm, k_norm;
  Linear q, k, v, o;
  Linear gate_up;  // packed interleaved, the bias of gate, then that of up; only up without a gate
  Linear down;
  Factor qkv_factor, o_factor, gate_up_factor, down_factor;
};

// All weights of a decoder in the order in which kernels read them. Embeddings stay in the file,
// and rows are decoded one token at a time. Panels may lie in a PackedFile.
struct ModelWeights {
  std::vector<LayerWeights> layers;
  Norm final_norm;
  Linear head;
  EmbeddingRows embedding;
  StoredMatrix positions;                    // [context, hidden]; empty without learned positions
  std::shared_ptr<const PackedFile> packed;  // null if the panels are in memory
  std::vector<model_io::KeptTensor> kept;    // what --weights did not quantize

  // The number of packed bytes, all of which a decode step reads.
  Index bytes() const;
};

// The weights of `file`, which must outlive the result, with the matrices that `packer` gives.
// Factors of products are packed each time, as they are small.
ModelWeights pack_weights(const model_io::ModelFile& file, WeightPacker& packer,
                          Executor& executor);

}  // namespace hone::infer
