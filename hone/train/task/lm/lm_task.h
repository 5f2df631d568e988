// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/text/token_stream.h"
#include "hone/train/loss/distillation.h"
#include "hone/train/nn/llama.h"
#include "hone/train/task/lm/token_data.h"
#include "hone/train/trainer/trainer.h"

namespace hone::task {

// Held-out documents and the number of bytes per token.
struct HeldOutText {
  text::TokenStream stream;
  std::vector<Index> bytes_of_token;  // by id
};

// Next-token prediction with a Llama over windows, on the device of the model.
class LmTask final : public trainer::Task {
 public:
  LmTask(nn::Llama model, TokenWindows train, HeldOutText held_out, Index micro_batch,
         Index accumulation_steps, Index validation_tokens);

  // From now on, the loss is that of distillation.
  void learn_from(nn::Llama teacher, const loss::DistillationOptions& options);

  trainer::LossSum micro_batch(Index step, Index micro) override;
  double nominal_weight() const override;
  // Like `hone eval`: cuts each document from its start into windows of the context, at most
  // text::kEvalWindow, without overlap, and predicts every token except the first of a window. Bits
  // per byte refer to the bytes of the predicted tokens.
  trainer::Validation validate(bool all, const trainer::BatchDone& batch_done) override;
  std::vector<trainer::CheckpointTensor> weights() override;
  // The share of the predicted tokens of validate() that the teacher predicts, too: the most
  // probable one of both. Needs a teacher.
  double agreement(bool all);
  torch::nn::Module* module() override { return model_.get(); }
  // One window: {ids, targets}, each [1, length].
  std::vector<torch::Tensor> largest_sample() override;
  trainer::LossSum loss_of(const std::vector<torch::Tensor>& batch) override;
  bool recompute_activations() override;
  Index halve_micro_batches() override;
  bool halve_validation_batches() override;

 private:
  trainer::LossSum loss_of(const torch::Tensor& ids, const torch::Tensor& targets, double weight);
  std::vector<std::span<const text::TokenId>> held_out_windows(bool all, Index context) const;

  nn::Llama model_, teacher_{nullptr};
  loss::DistillationOptions distillation_;
  c10::Device device_;
  TokenWindows train_;
  HeldOutText held_out_;
  Index samples_;        // per step
  Index micro_batches_;  // per step; micro m has samples from ⌊m·samples/micro_batches⌋
  Index validation_tokens_;
  Index validation_batch_ = 4096;  // tokens per pass; few, so that logits stay in cache
};

}  // namespace hone::task
