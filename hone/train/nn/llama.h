// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "hone/model_io/architecture.h"
#include "hone/train/nn/ops.h"
#include "hone/train/surgery/slot.h"
#include "hone/train/tensor_file.h"

namespace hone::nn {

// One decoder layer. q, k and v are one product, and so are gate and up; hugging_face_tensors()
// separates them. The products are the submodules self_attn.qkv_proj, self_attn.o_proj,
// mlp.gate_up_proj and mlp.down_proj, at first nn::Linear.
class LlamaLayerImpl : public torch::nn::Module {
 public:
  LlamaLayerImpl(const model_io::Architecture& architecture, MatmulBackend backend);

  HeadLayout layout;
  torch::Tensor input_norm, mlp_norm;
  Slot qkv{nullptr}, o{nullptr}, gate_up{nullptr}, down{nullptr};
};
TORCH_MODULE(LlamaLayer);

// A Llama-family decoder (RMSNorm, half-split RoPE, grouped-query attention, SwiGLU), trained from
// position 0. Its decoder layers are the submodules layers.0, layers.1, …; replace() can exchange
// their products ("layers.0.mlp.down_proj") for other layers from [rows, in] to [rows, out].
class LlamaImpl : public torch::nn::Module {
 public:
  // Initializes weights from Philox(seed) as normal(0, σ) with σ = 1/√hidden_size (the usual 0.02
  // fits a hidden size of 2500; at 160 it leaves attention flat for a thousand steps). Weights that
  // write to the residual stream (o, down) get σ/√(2·layers), norms 1, biases 0. Throws
  // Error{Unsupported} for RoPE over a part of the head or with adjacent pairs, and for factored
  // layers, which task::make_llama() builds.
  LlamaImpl(const model_io::Architecture& architecture, std::uint64_t seed,
            MatmulBackend backend = MatmulBackend::Auto);

  // ids [batch, positions] int64 -> logits [batch, positions, vocab].
  torch::Tensor forward(const torch::Tensor& ids) const;
  // The sum of nats over targets ≥ 0 as an f64 scalar; targets [batch, positions] int64.
  torch::Tensor loss_sum(const torch::Tensor& ids, const torch::Tensor& targets) const;
  // Makes layers 0, k, 2k, … keep only their inputs for the backward pass and compute the rest
  // again there (nn::recompute). 0 disables it. Losses and gradients do not change by a bit.
  void set_recompute_every(Index k);
  Index recompute_every() const { return recompute_every_; }

  const model_io::Architecture& architecture() const { return architecture_; }
  // Views of the parameters under their Hugging Face names in the order of transformers, without
  // lm_head if it is tied. A product that is no Linear has its own parameters under its own name:
  // "model.layers.0.mlp.gate_up_proj.a".
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
