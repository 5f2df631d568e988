// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hone/text/vocabulary.h"

namespace hone::text {

struct BpeTrainOptions {
  Index vocab_size = 2048;  // including special tokens and the 256 bytes
  // Control tokens, with ids from 0. The first becomes BOS and EOS; add_bos stays false.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  Index min_count = 2;  // pairs that occur less often are not merged
};

// Learns a byte-level BPE with GPT-2's splitter. Ids are assigned to the special tokens, the 256
// bytes in the order of their letters, and then one piece per merge; two merges with the same union
// share its piece. Every step merges the most frequent adjacent pair, on ties the one with the
// smaller (left id, right id). Ids and merges equal those of the BpeTrainer in Hugging Face's
// tokenizers (initial alphabet: all bytes). If the texts run out of pairs, there are fewer than
// vocab_size pieces. Throws Error{InvalidArgument} if the special tokens and bytes alone exceed
// vocab_size.
Vocabulary train_byte_level_bpe(std::span<const std::string_view> texts,
                                const BpeTrainOptions& options);

}  // namespace hone::text
