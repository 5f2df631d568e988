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

// A corpus, read and tokenized according to a configuration.
struct LmData {
  std::string name;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  text::TokenStream train;
  HeldOutText held_out;
  Index train_bytes = 0, held_out_bytes = 0;
  std::string hash;  // SHA-256 of both parts
};

// Reads config.data.path, or draws stories with trainer.seed. If the tokenizer is null, makes one
// from the training part. Appends EOS (kEndOfText of a new tokenizer) to each document of a folder
// or of JSON lines; stories already contain kEndOfText. A document begins with BOS if the tokenizer
// says so; new tokenizers do not.
LmData load_lm_data(const LmConfig& config,
                    std::shared_ptr<const text::Tokenizer> tokenizer = nullptr);

// Returns the windows that config.data.windows selects.
TokenWindows training_windows(const LmConfig& config, const LmData& data);

// Returns a tokenizer with one token per byte, and kEndOfText.
std::shared_ptr<const text::Tokenizer> make_byte_tokenizer();

}  // namespace hone::task
