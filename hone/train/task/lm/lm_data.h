// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hone/text/tokenizer.h"
#include "hone/train/task/lm/lm_config.h"
#include "hone/train/task/lm/lm_task.h"

namespace hone::task {

// The control token between documents, and BOS and EOS of the tokenizers made here.
inline constexpr const char* kEndOfText = "<|endoftext|>";

// A corpus, read and tokenized as a configuration asks.
struct LmData {
  std::string name;
  std::shared_ptr<const text::Tokenizer> tokenizer;  // made from the training part
  text::TokenStream train;
  HeldOutText held_out;
  Index train_bytes = 0, held_out_bytes = 0;
  std::string hash;  // SHA-256 of both parts
};

// config.data.path, or stories drawn with trainer.seed. Documents of a folder or of JSON lines are
// each ended by kEndOfText; stories carry their own end.
LmData load_lm_data(const LmConfig& config);

// As config.data.windows asks.
TokenWindows training_windows(const LmConfig& config, const LmData& data);

// One token per byte, and kEndOfText.
std::shared_ptr<const text::Tokenizer> make_byte_tokenizer();

}  // namespace hone::task
