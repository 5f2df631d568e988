// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hone/core/file/json_io.h"
#include "hone/text/vocabulary.h"

namespace hone::text {

// Reads Hugging Face's tokenizer.json for BPE models: byte-level, and SentencePiece as Llama 2
// exports it. Error{Unsupported} names the first component that hone does not support,
// Error{CorruptFile} the defect of a broken file.
Vocabulary read_tokenizer_json(const Json& json, std::string_view where);

// Applies a tokenizer_config.json (or special_tokens_map.json): which tokens are BOS, EOS, padding
// and unknown, and for Llama classes whether encoding adds BOS and EOS.
void apply_tokenizer_config(Vocabulary& vocabulary, const Json& config, std::string_view where);

// Reads GPT-2's original pair of files.
Vocabulary read_vocab_and_merges(const Json& vocab, std::string_view merges,
                                 std::string_view where);

// The tokenizer.json and tokenizer_config.json with which transformers.AutoTokenizer yields the
// same ids as hone with parse_special. Throws Error{Unsupported} if they cannot express the
// vocabulary.
Json to_tokenizer_json(const Vocabulary& vocabulary);
Json to_tokenizer_config_json(const Vocabulary& vocabulary);

}  // namespace hone::text
