// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/text/tokenizer.h"
#include "hone/train/nn/llama.h"
#include "hone/train/trainer/token_data.h"
#include "hone/train/trainer/trainer.h"

namespace hone::trainer {

// Held-out tokens and how many bytes of text each stands for.
struct HeldOutText {
  std::vector<text::TokenId> tokens;
  std::vector<Index> bytes_of_token;  // by id
};

// Next-token prediction with a Llama over windows of its context.
class LmTask final : public Task {
 public:
  LmTask(nn::Llama model, TokenWindows train, HeldOutText held_out, Index micro_batch,
         Index accumulation_steps, Index validation_tokens);

  LossSum micro_batch(Index step, Index micro) override;
  double nominal_weight() const override;
  // product.md's convention: windows of the context without overlap, every token but a window's
  // first predicted; bits per byte over the bytes of the predicted tokens.
  Validation validate(bool all) override;
  std::vector<CheckpointTensor> weights() override;

 private:
  nn::Llama model_;
  TokenWindows train_;
  HeldOutText held_out_;
  Index micro_batch_, accumulation_steps_, validation_tokens_;
};

}  // namespace hone::trainer
