// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hone/core/gguf.h"
#include "hone/text/vocabulary.h"

namespace hone::model_io {

// Does the file say how to tokenize (tokenizer.ggml.model other than no_vocab)?
bool has_gguf_vocabulary(const GgufFile& file);

// The keys tokenizer.ggml.*; defaults where a key is absent are llama.cpp's.
// Error{Unsupported} for models other than llama (SentencePiece BPE) and gpt2 (byte-level BPE).
text::Vocabulary read_gguf_vocabulary(const GgufFile& file, std::string_view where);

// Writes the keys except the special ids that the architecture owns (BOS and stop tokens): those
// are `bos` and `stop_ids` of the model. `rows` is the embedding's; missing pieces are filled with
// unused ones, because other programs take the vocabulary's size for the embedding's.
// Error{Unsupported} for what the keys cannot express.
void write_gguf_vocabulary(const text::Vocabulary& vocabulary, Index rows, GgufWriter& writer);

}  // namespace hone::model_io
