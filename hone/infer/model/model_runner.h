// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/dtype.h"
#include "hone/infer/input_listener.h"
#include "hone/infer/kv/kv_plan.h"
#include "hone/infer/model/activation_buffers.h"
#include "hone/infer/model/step_batch.h"
#include "hone/infer/model/weights.h"
#include "hone/kernels/attention/attention.h"
#include "hone/kernels/gemm/gemm.h"
#include "hone/model_io/model_file.h"

namespace hone::infer {

struct RunnerOptions {
  // Int8: int8 activations with quantized weights, f32 with others. Float32: never int8.
  kernels::Act act = kernels::Act::Int8;
  Dtype kv = Dtype::Float16;  // type of the caches; also Float32 or Int8
  Index max_rows = 512;       // maximum number of tokens per forward()
  WeightOptions weights = {};
};

// The cosines and sines that rotate the rows of a batch.
class RopeTables {
 public:
  // For batches of up to `rows` rows.
  RopeTables(const model_io::RopeSpec& rope, Index rows);
  void fill(Index first_row, const StepSequence& sequence);
  const float* cosine_of(Index row) const { return cosine_.data() + row * pairs(); }
  const float* sine_of(Index row) const { return sine_.data() + row * pairs(); }

 private:
  Index pairs() const { return std::ssize(frequencies_.inverse); }

  model_io::RopeFrequencies frequencies_;
  std::vector<float> cosine_, sine_;  // [rows, rotary_dims / 2]
};

// The forward pass of a decoder over the rows of several sequences, according to the traits of the
// architecture. A layer consists of five parallel regions: q, k, v; attention; o + residual; gate,
// up + activation; down + residual. For few rows, norms, activation packing, RoPE and cache writes
// run on the calling thread between them. The residual stream is f32.
//
// A token's logits depend only on that token and its sequence's cache, neither on the other rows
// and sequences nor on the number of threads. Not thread-safe; workspaces are allocated once.
class ModelRunner {
 public:
  // `file` and `executor` must outlive the runner. Loads the weights as options.weights says, or
  // takes them.
  ModelRunner(const model_io::ModelFile& file, const RunnerOptions& options, Executor& executor);
  ModelRunner(const model_io::ModelFile& file, const RunnerOptions& options, Executor& executor,
              ModelWeights weights);

  // Runs the rows of a batch and writes their keys and values to the caches. No worker reads the
  // caches after the call. Calls `go_on`, if it is set, before each layer. If `go_on` returns
  // false, stops and returns false; the cells of the batch's positions are then undefined.
  // Throws Error{InvalidArgument} for no rows, more than max_rows, sequences whose rows do not add
  // up, an id outside the vocabulary, or missing blocks. Throws Error{CorruptFile} if a file with
  // weights was truncated.
  bool forward(const StepBatch& batch, const std::function<bool()>& go_on = {});

  // The steps of forward(), for code that runs all texts through one layer before the next: the
  // embedding of a batch, and a layer, which changes the residual stream `hidden` [rows,
  // hidden_size]. `listener`, if it is set, sees the input of each product of the layer.
  void read_embedding(const StepBatch& batch, float* hidden);
  void run_layer(Index layer, const StepBatch& batch, float* hidden,
                 const InputListener& listener = {});
  void set_layer(Index layer, LayerWeights weights);

  // The wanted logits first, first + 1, … of the last batch, in its order, as [count, vocab]. Valid
  // until the next call.
  std::span<float> logits(Index first, Index count);
  // copy_hidden() copies the hidden states [count, hidden_size] of the same rows. logits_of()
  // computes the logits of such states of any batch, and overwrites the logits of the last call. It
  // takes at most logit_rows() rows at a time: about 16 MiB of logits, and no more than max_rows().
  void copy_hidden(Index first, Index count, float* out) const;
  std::span<float> logits_of(const float* hidden, Index count);
  Index logit_rows() const;

  Index max_rows() const { return options_.max_rows; }
  Index vocab_size() const { return arch_.vocab_size; }
  Index hidden_size() const { return arch_.hidden_size; }
  Index layers() const { return arch_.layers; }
  Index weight_bytes() const { return weights_.bytes(); }
  const ModelWeights& weights() const { return weights_; }
  // The groups of layers of the caches that forward() takes, and the layout of a group's blocks.
  std::span<const LayerGroup> kv_groups() const { return kv_.groups; }
  const kernels::KvLayout& kv_layout(Index group = 0) const {
    return layouts_[static_cast<std::size_t>(group)];
  }
  // The micro-kernel of the layers' products.
  std::string kernel_name() const;

 private:
  void check(const StepBatch& batch) const;
  void prepare(const StepBatch& batch);
  void embed(const StepBatch& batch);
  void add_positions(Index first_row, const StepSequence& sequence);
  void attention_block(const LayerWeights& layer, const StepBatch& batch, Index index);
  void mlp_block(const LayerWeights& layer, Index rows);
  const float* block_input(const Norm& norm, Index rows);
  void add_product(Index product, const float* x, Index rows, const Factor& factor,
                   const Linear& linear, const Norm& norm);
  void project(Index product, const float* x, Index rows, const Factor& factor,
               std::span<const kernels::GemmOutput> outputs);
  float* next_queries(Index rows);
  void rotate_and_store(const LayerWeights& layer, float* q, Index rows, Index index);
  void normalize_heads(const Norm& norm, Index rows, Index heads, float* x) const;
  void rotate(Index layer, Index first, Index rows, Index heads, float* x) const;
  void store(Index begin, Index end, Index layer);
  void normalize(const float* x, const Norm& norm, Index rows, float* y);
  void multiply(const float* x, Index rows, Index cols,
                std::span<const kernels::GemmOutput> outputs);
  kernels::Act act_of(const kernels::PackedMatrix& weight) const;
  std::span<const Index> wanted_rows(Index first, Index count) const;
  std::span<float> multiply_head(Index count);
  void check_files() const;

  const model_io::Architecture& arch_;
  RunnerOptions options_;
  Executor& executor_;
  const model_io::ModelFile& file_;
  ModelWeights weights_;
  KvPlan kv_;
  std::vector<kernels::KvLayout> layouts_;                    // by group of layers
  Buffer hidden_, normed_, k_, v_, attended_, mlp_, logits_;  // [max_rows, …] f32
  Buffer factored_;                                           // A x of a factored product
  Buffer branch_;                                  // a block's result, if it is normalized
  ActivationBuffers<kernels::PackedRows> packed_;  // input of products
  ActivationBuffers<Buffer> queries_;              // input of attention, shaped like attended_
  std::vector<RopeTables> ropes_;                  // for most layers, then for layers with a window
  // The sequences of the last forward(), by group of layers.
  std::vector<std::vector<kernels::AttentionSequence>> sequences_;
  std::vector<Index> wanted_;                // rows of the last forward() whose logits are wanted
  const InputListener* listener_ = nullptr;  // during run_layer()
};

}  // namespace hone::infer
