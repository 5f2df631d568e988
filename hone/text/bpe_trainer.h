// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hone/text/vocabulary.h"

namespace hone::text {

struct BpeTrainOptions {
  Index vocab_size = 2048;  // special tokens and the 256 bytes included
  // Control tokens, ids from 0. The first becomes BOS and EOS; add_bos stays false.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  Index min_count = 2;  // a pair that occurs less often is not merged
};

// Learns a byte-level BPE with GPT-2's splitter. Ids: special tokens, the 256 bytes in the order of
// their letters, then one new piece per merge; two merges with one union share its piece. Every
// step merges the most frequent adjacent pair, on ties the one of the smaller (left id, right id).
// These are the ids and merges of the BpeTrainer in Hugging Face's tokenizers (initial alphabet:
// all bytes). Fewer than vocab_size pieces result when the texts run out of pairs.
// Error{InvalidArgument} when the special tokens and bytes alone exceed vocab_size.
Vocabulary train_byte_level_bpe(std::span<const std::string_view> texts,
                                const BpeTrainOptions& options);

}  // namespace hone::text
