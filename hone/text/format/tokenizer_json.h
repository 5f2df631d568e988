// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hone/core/json_io.h"
#include "hone/text/vocabulary.h"

namespace hone::text {

// Hugging Face's tokenizer.json (BPE models: byte-level, and SentencePiece as Llama 2 exports it).
// Error{Unsupported} names the first component that hone does not run; Error{CorruptFile} what is
// wrong in the file.
Vocabulary read_tokenizer_json(const Json& json, std::string_view where);

// What tokenizer_config.json (or special_tokens_map.json) adds: which tokens are BOS, EOS, padding
// and unknown, and for Llama classes whether BOS and EOS are added.
void apply_tokenizer_config(Vocabulary& vocabulary, const Json& config, std::string_view where);

// GPT-2's original pair of files.
Vocabulary read_vocab_and_merges(const Json& vocab, std::string_view merges,
                                 std::string_view where);

// tokenizer.json and tokenizer_config.json from which transformers.AutoTokenizer gives the ids that
// hone gives with parse_special. Error{Unsupported} when the vocabulary cannot be said in them.
Json to_tokenizer_json(const Vocabulary& vocabulary);
Json to_tokenizer_config_json(const Vocabulary& vocabulary);

}  // namespace hone::text
