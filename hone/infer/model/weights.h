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
  std::vector<float> weight, bias;  // an empty bias means RMSNorm

  bool is_empty() const { return weight.empty(); }
};

// The factor A of products y = B (A x). Products with the same x share A, and B is the weight of
// their Linear. A has no rows if the products are dense.
using Factor = kernels::PackedMatrix;

struct LayerWeights {
  Norm attention_norm, mlp_norm;            // for the input of a block
  Norm attention_post_norm, mlp_post_norm;  // for the output of a block
  Norm q_norm, k_norm;
  Linear q, k, v, o;
  Linear gate_up;  // interleaved; bias: gate, then up; without a gate, only up
  Linear down;
  Factor qkv_factor, o_factor, gate_up_factor, down_factor;
};

// All weights of a decoder in the order in which kernels read them. Embeddings remain in the file,
// and rows are decoded one token at a time. Panels may be in a PackedFile.
struct ModelWeights {
  std::vector<LayerWeights> layers;
  Norm final_norm;
  Linear head;
  EmbeddingRows embedding;
  StoredMatrix positions;                    // [context, hidden]; empty without learned positions
  std::shared_ptr<const PackedFile> packed;  // null if the panels are in memory
  std::vector<model_io::KeptTensor> kept;    // matrices that --weights did not quantize

  // The number of packed bytes, all of which a decode step reads.
  Index bytes() const;
};

// Packs the weights of `file`, which must outlive the result, with `packer`. Factors of products
// are packed each time, because they are small.
ModelWeights pack_weights(const model_io::ModelFile& file, WeightPacker& packer,
                          Executor& executor);

// The parts of pack_weights(), for code that has one layer in memory at a time: everything but the
// layers, which are empty, and one layer.
ModelWeights pack_outer_weights(const model_io::ModelFile& file, WeightPacker& packer);
LayerWeights pack_layer(const model_io::ModelFile& file, Index layer, WeightPacker& packer,
                        Executor& executor);

}  // namespace hone::infer
