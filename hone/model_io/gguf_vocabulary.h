// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hone/core/format/gguf.h"
#include "hone/text/vocabulary.h"

namespace hone::model_io {

// Whether the file has a tokenizer (tokenizer.ggml.model other than no_vocab).
bool has_gguf_vocabulary(const GgufFile& file);

// Reads the keys tokenizer.ggml.*; defaults of absent keys are those of llama.cpp. Throws
// Error{Unsupported} for models other than llama (SentencePiece BPE) and gpt2 (byte-level BPE).
text::Vocabulary read_gguf_vocabulary(const GgufFile& file, std::string_view where);

// Writes the keys, except for BOS and stop tokens, which belong to the architecture. `rows` is the
// number of rows of the embedding; the vocabulary is padded to it with unused pieces, because other
// programs assume that the two are equal. Throws Error{Unsupported} for vocabularies that the keys
// cannot express.
void write_gguf_vocabulary(const text::Vocabulary& vocabulary, Index rows, GgufWriter& writer);

}  // namespace hone::model_io
