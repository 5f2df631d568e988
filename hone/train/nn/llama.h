// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "hone/model_io/architecture.h"
#include "hone/train/nn/ops.h"
#include "hone/train/tensor_file.h"

namespace hone::nn {

// One decoder layer. q, k, v and gate, up are stored as one matrix each, so that each pair of
// products is one; hugging_face_tensors() takes them apart.
class LlamaLayerImpl : public torch::nn::Module {
 public:
  explicit LlamaLayerImpl(const model_io::Architecture& architecture);

  HeadLayout layout;
  torch::Tensor input_norm, qkv, qkv_bias, o, o_bias;  // biases undefined where there are none
  torch::Tensor mlp_norm, gate_up, gate_up_bias, down, down_bias;
};
TORCH_MODULE(LlamaLayer);

// Llama-family decoder (RMSNorm, half-split RoPE, grouped-query attention, SwiGLU), trained from
// position 0. RoPE over a part of the head, or of adjacent pairs: Error{Unsupported}.
class LlamaImpl : public torch::nn::Module {
 public:
  // Weights: normal(0, σ) drawn from Philox(seed), σ = 1/√hidden_size (the usual 0.02 is that of
  // 2500; at 160 it leaves attention flat for a thousand steps), those that write to the residual
  // stream (o, down) with σ/√(2·layers); norms 1; biases 0.
  LlamaImpl(const model_io::Architecture& architecture, std::uint64_t seed,
            MatmulBackend backend = MatmulBackend::Auto);

  // ids [batch, positions] int64 -> logits [batch, positions, vocab].
  torch::Tensor forward(const torch::Tensor& ids) const;
  // Σ of nats over targets ≥ 0; targets [batch, positions] int64. f64 scalar.
  torch::Tensor loss_sum(const torch::Tensor& ids, const torch::Tensor& targets) const;
  // From now on layers 0, k, 2k, … keep only their inputs for the backward pass and are computed
  // again there (nn::checkpoint); 0: none. Losses and gradients keep their bits.
  void set_recompute_every(Index k);
  Index recompute_every() const { return recompute_every_; }

  const model_io::Architecture& architecture() const { return architecture_; }
  // Views of the parameters under their Hugging Face names, in the order of transformers; no
  // lm_head when tied.
  std::vector<NamedTensor> hugging_face_tensors() const;

 private:
  torch::Tensor hidden(const torch::Tensor& ids) const;
  const torch::Tensor& head() const { return lm_head_.defined() ? lm_head_ : embed_tokens_; }

  model_io::Architecture architecture_;
  MatmulBackend backend_;
  torch::Tensor embed_tokens_, norm_, lm_head_;
  std::vector<LlamaLayer> layers_;
  RopeTable rope_;
  Index recompute_every_ = 0;
};
TORCH_MODULE(Llama);

}  // namespace hone::nn
