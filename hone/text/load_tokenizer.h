// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "hone/text/vocabulary.h"

namespace hone::text {

// Opens a tokenizer by itself: a tokenizer.json, a vocab.json or merges.txt with the other beside
// it, a SentencePiece .model, a llama2.c tok.bin, or a folder that holds one of them (in this
// order; tokenizer.bin and tok*.bin last). tokenizer_config.json beside it is obeyed. Not GGUF,
// whose vocabulary model_io reads. Error{NotFound}, Error{CorruptFile}, Error{Unsupported}: one
// sentence naming the file.
std::shared_ptr<const Tokenizer> load_tokenizer_or_throw(const std::filesystem::path& path);

// tokenizer.bin and tok*.bin in a folder, by name; none where it cannot be read.
std::vector<std::filesystem::path> list_tok_bins(const std::filesystem::path& folder);

// The tokenizer file in a folder, as above; empty when there is none.
std::filesystem::path find_tokenizer_file(const std::filesystem::path& folder);

}  // namespace hone::text
