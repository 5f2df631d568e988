// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/executor.h"
#include "hone/kernels/gemm/packed_matrix.h"
#include "hone/model_io/model_file.h"

namespace hone::infer {

// One product of a layer: packed weights and, where the model has one, a bias.
struct Linear {
  kernels::PackedMatrix weight;
  std::vector<float> bias;  // empty: none

  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
};

struct LayerWeights {
  std::vector<float> attention_norm, mlp_norm;
  Linear q, k, v, o;
  Linear gate_up;  // one interleaved pack; bias: gate's, then up's
  Linear down;
};

// All weights of a Llama-family model in the order the kernels read them. Embedding rows stay in
// the file and are decoded one token at a time.
struct ModelWeights {
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;
  Linear head;
  StoredMatrix embedding;

  // What one decode step reads: every packed byte.
  Index bytes() const;
};

// Packs tensor by tensor and drops each one's file pages, so that memory peaks at the packed size
// plus the largest tensor. `file` must outlive the result.
ModelWeights pack_weights(const model_io::ModelFile& file, Executor& executor);

}  // namespace hone::infer
