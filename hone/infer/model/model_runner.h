// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/dtype.h"
#include "hone/infer/model/activation_ring.h"
#include "hone/infer/model/step_batch.h"
#include "hone/infer/model/weights.h"
#include "hone/kernels/attention/attention.h"
#include "hone/kernels/gemm/gemm.h"
#include "hone/model_io/model_file.h"

namespace hone::infer {

struct RunnerOptions {
  // Int8: int8 activations with quantized weights, f32 with others. Float32: never int8.
  kernels::Act act = kernels::Act::Int8;
  Dtype kv = Dtype::Float16;  // of the caches, or Float32
  Index max_rows = 512;       // maximum number of tokens per forward()
  WeightOptions weights = {};
};

// The forward pass of a Llama-family model over the rows of several sequences. A layer consists of
// five parallel regions: q, k, v; attention; o + residual; gate, up + SiLU; down + residual. For
// few rows, norms, activation packing, RoPE and cache writes run on the calling thread between
// them. The residual stream is f32.
//
// A token's logits depend only on that token and its sequence's cache, neither on the other rows
// and sequences nor on the number of threads. Not thread-safe; workspaces are allocated once.
class ModelRunner {
 public:
  // `file` and `executor` must outlive the runner.
  ModelRunner(const model_io::ModelFile& file, const RunnerOptions& options, Executor& executor);

  // Runs the rows of a batch and writes their keys and values to the caches. `go_on` is asked
  // before each layer, if it is not empty; if it says no, returns false, and the cells of the
  // batch's positions hold anything. Throws Error{InvalidArgument} for no rows, more than max_rows,
  // rows that the sequences do not add up to, an id outside the vocabulary, or missing blocks;
  // Error{CorruptFile} if a file that weights are in was truncated.
  bool forward(const StepBatch& batch, const std::function<bool()>& go_on = {});

  // The wanted logits first… of the last batch, in its order, as [count, vocab]. Valid until the
  // next call.
  std::span<float> logits(Index first, Index count);

  Index max_rows() const { return options_.max_rows; }
  Index vocab_size() const { return arch_.vocab_size; }
  Index weight_bytes() const { return weights_.bytes(); }
  const ModelWeights& weights() const { return weights_; }
  // Of the caches that forward() takes.
  const kernels::KvLayout& kv_layout() const { return layout_; }
  // The micro-kernel of the layers' products.
  std::string kernel_name() const;

 private:
  void check(const StepBatch& batch) const;
  void embed(const StepBatch& batch);
  void attention_block(const LayerWeights& layer, const StepBatch& batch, Index index);
  void mlp_block(const LayerWeights& layer, Index rows);
  void rotate_and_store(Index rows, Index layer);
  void store(Index begin, Index end, Index layer);
  void normalize(const float* x, const std::vector<float>& weight, Index rows, float* y);
  void multiply(const float* x, Index rows, Index cols,
                std::span<const kernels::GemmOutput> outputs);
  kernels::Act act_of(const kernels::PackedMatrix& weight) const;

  void check_files() const;

  const model_io::Architecture& arch_;
  RunnerOptions options_;
  Executor& executor_;
  const model_io::ModelFile& file_;
  ModelWeights weights_;
  model_io::RopeFrequencies rope_;
  kernels::KvLayout layout_;
  ActivationRing ring_;
  kernels::AttentionWorkspace attention_workspace_;
  Buffer hidden_, normed_, q_, k_, v_, mlp_, logits_;  // [max_rows, …] f32
  std::vector<float> cosine_, sine_;                   // [max_rows, rotary_dims / 2]
  std::vector<kernels::AttentionSequence> sequences_;  // of the last forward()
  std::vector<Index> wanted_;                          // its rows whose logits are wanted
};

}  // namespace hone::infer
