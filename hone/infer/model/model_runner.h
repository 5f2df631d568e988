// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/infer/kv/kv_cache.h"
#include "hone/infer/model/activation_ring.h"
#include "hone/infer/model/weights.h"
#include "hone/kernels/attention/attention.h"
#include "hone/kernels/gemm/gemm.h"
#include "hone/model_io/model_file.h"

namespace hone::infer {

struct RunnerOptions {
  // Int8: int8 activations with quantized weights, f32 with others. Float32: never int8.
  kernels::Act act = kernels::Act::Int8;
  Index max_rows = 512;  // maximum number of tokens per forward()
};

// The forward pass of a Llama-family model. A layer consists of five parallel regions: q, k, v;
// attention; o + residual; gate, up + SiLU; down + residual. For few rows, norms, activation
// packing, RoPE and cache writes run on the calling thread between them. The residual stream is
// f32.
//
// A token's logits depend only on that token and the cache, neither on the number of tokens per
// call nor on the number of threads. Not thread-safe; workspaces are allocated once.
class ModelRunner {
 public:
  // `file` and `executor` must outlive the runner.
  ModelRunner(const model_io::ModelFile& file, const RunnerOptions& options, Executor& executor);

  // Runs tokens at positions cache.length()… and commits them. If *cancelled becomes true between
  // two layers, returns false and leaves the cache unchanged; null means never. Throws
  // Error{InvalidArgument} for no tokens, more than max_rows, an id outside the vocabulary, or a
  // full cache.
  bool forward(std::span<const text::TokenId> tokens, KvCache& cache,
               const std::atomic<bool>* cancelled = nullptr);

  // The logits [rows, vocab] after tokens first_row… of the last forward(). Valid until the next
  // call.
  std::span<float> logits(Index first_row, Index rows);

  Index max_rows() const { return options_.max_rows; }
  Index weight_bytes() const { return weights_.bytes(); }
  kernels::KvLayout kv_layout(Dtype dtype) const;
  // The micro-kernel of the layers' products.
  std::string kernel_name() const;

 private:
  void embed(std::span<const text::TokenId> tokens, Index first_position);
  void attention_block(const LayerWeights& layer, KvCache& cache, Index index, Index rows);
  void mlp_block(const LayerWeights& layer, Index rows);
  void rotate_and_store(const kernels::KvView& view, Index first_position, Index rows);
  void normalize(const float* x, const std::vector<float>& weight, Index rows);
  void multiply(const float* x, Index rows, Index cols,
                std::span<const kernels::GemmOutput> outputs);
  kernels::Act act_of(const kernels::PackedMatrix& weight) const;

  const model_io::Architecture& arch_;
  RunnerOptions options_;
  Executor& executor_;
  ModelWeights weights_;
  model_io::RopeFrequencies rope_;
  ActivationRing ring_;
  kernels::AttentionWorkspace attention_workspace_;
  Buffer hidden_, normed_, q_, k_, v_, mlp_, logits_;  // [max_rows, …] f32
  std::vector<float> cosine_, sine_;                   // [max_rows, rotary_dims / 2]
  Index rows_ = 0;                                     // of the last forward()
};

}  // namespace hone::infer
