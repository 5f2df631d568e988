// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "hone/text/vocabulary.h"

namespace hone::text {

// Opens a tokenizer from a tokenizer.json, a vocab.json or merges.txt with the other next to it, a
// SentencePiece .model, a llama2.c tok.bin, or a folder that contains one of them (tried in this
// order; tokenizer.bin and tok*.bin last). Applies a tokenizer_config.json next to it. GGUF
// vocabularies are read by model_io. Throws Error{NotFound}, Error{CorruptFile} or
// Error{Unsupported} that names the file.
std::shared_ptr<const Tokenizer> load_tokenizer_or_throw(const std::filesystem::path& path);

// tokenizer.bin and tok*.bin in a folder, sorted by name; empty if the folder cannot be read.
std::vector<std::filesystem::path> list_tok_bins(const std::filesystem::path& folder);

// The tokenizer file in a folder, in the order above; empty if there is none.
std::filesystem::path find_tokenizer_file(const std::filesystem::path& folder);

// All files that load_tokenizer_or_throw(path) may read, sorted, whether or not it needs them.
std::vector<std::filesystem::path> list_tokenizer_files(const std::filesystem::path& path);

}  // namespace hone::text
