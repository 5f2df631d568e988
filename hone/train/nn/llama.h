// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "hone/model_io/architecture.h"
#include "hone/train/nn/attention.h"
#include "hone/train/nn/ops.h"
#include "hone/train/surgery/slot.h"
#include "hone/train/tensor_file.h"

namespace hone::nn {

// Throws Error{Unsupported} that names `where` and the first trait that nn::Llama does not support:
// LayerNorm, an MLP without a gate, learned positions, partial or adjacent RoPE, soft caps, or
// layers of different widths.
void check_trainable(const model_io::Architecture& architecture, const std::string& where);

// One decoder layer. q, k and v are one product, and so are gate and up; model_tensors() separates
// them. The products are the submodules self_attn.qkv_proj, self_attn.o_proj, mlp.gate_up_proj and
// mlp.down_proj, at first nn::Linear.
class LlamaLayerImpl : public torch::nn::Module {
 public:
  // `rope` is the table for layer `index`.
  LlamaLayerImpl(const model_io::Architecture& architecture, Index index, const RopeTable& rope,
                 MatmulBackend backend);

  // Maps (x, delta) before the layer to (x, delta) after it, [batch · positions, hidden]. The
  // residual stream is x + delta; delta may be undefined. `mask` is the mask of the layer's window.
  std::pair<torch::Tensor, torch::Tensor> forward(torch::Tensor x, torch::Tensor delta,
                                                  Index positions, const torch::Tensor& mask);

  HeadLayout layout;
  Index window;  // positions that a token sees; 0: all
  // Weights of norms; undefined if the architecture has none.
  torch::Tensor input_norm, mlp_norm;                    // norms of block inputs
  torch::Tensor q_norm, k_norm;                          // AttentionTraits
  torch::Tensor attention_output_norm, mlp_output_norm;  // norms of block outputs
  Slot qkv{nullptr}, o{nullptr}, gate_up{nullptr}, down{nullptr};

 private:
  torch::Tensor gain(const torch::Tensor& norm) const;
  std::pair<torch::Tensor, torch::Tensor> add_and_norm(const torch::Tensor& x,
                                                       const torch::Tensor& delta,
                                                       const torch::Tensor& norm) const;
  torch::Tensor normed(const torch::Tensor& x, const torch::Tensor& norm) const;

  RopeTable rope_;
  double norm_eps_, norm_offset_, scale_;
  Gate gate_;
};
TORCH_MODULE(LlamaLayer);

// A Llama-like decoder (RMSNorm, half-split RoPE, grouped-query attention, gated MLP) with the
// traits of its architecture, trained from position 0. Its decoder layers are the submodules
// layers.0, layers.1, …. replace() can exchange their products ("layers.0.mlp.down_proj") for other
// layers from [rows, in] to [rows, out].
class LlamaImpl : public torch::nn::Module {
 public:
  // Initializes weights from Philox(seed) as normal(0, σ) with σ = 1/√hidden_size. (The usual σ of
  // 0.02 fits a hidden size of 2500, but keeps the attention of small models flat.) Weights that
  // write to the residual stream (o, down) get σ/√(2·layers). Norms start as a factor of 1, biases
  // as 0. Throws like check_trainable(), and Error{Unsupported} for factored layers, which
  // task::make_llama() builds.
  LlamaImpl(const model_io::Architecture& architecture, std::uint64_t seed,
            MatmulBackend backend = MatmulBackend::Auto);

  // ids [batch, positions] int64 -> logits [batch, positions, vocab].
  torch::Tensor forward(const torch::Tensor& ids) const;
  // Returns the sum of losses in nats over targets ≥ 0, as an f64 scalar; targets [batch,
  // positions] int64.
  torch::Tensor loss_sum(const torch::Tensor& ids, const torch::Tensor& targets) const;
  // The normed outputs of the last layer [batch · positions, hidden], and the logits [rows, vocab]
  // of such rows.
  torch::Tensor hidden(const torch::Tensor& ids) const;
  torch::Tensor logits_of(const torch::Tensor& rows) const;
  // Makes layers 0, k, 2k, … keep only their inputs for the backward pass and compute the rest
  // again there (nn::recompute). 0 disables it. Losses and gradients are bit-identical.
  void set_recompute_every(Index k);
  Index recompute_every() const { return recompute_every_; }

  const model_io::Architecture& architecture() const { return architecture_; }
  // Returns views of the parameters in the order and with the names of model_io::plan_tensors(),
  // which are the names of Llama in transformers. A product that is not a Linear has its own
  // parameters under its own name: "model.layers.0.mlp.gate_up_proj.a".
  std::vector<NamedTensor> model_tensors() const;

 private:
  const torch::Tensor& head() const { return lm_head_.defined() ? lm_head_ : embed_tokens_; }

  model_io::Architecture architecture_;
  MatmulBackend backend_;
  torch::Tensor embed_tokens_, norm_, lm_head_;
  std::vector<LlamaLayer> layers_;
  Index recompute_every_ = 0;
};
TORCH_MODULE(Llama);

}  // namespace hone::nn
