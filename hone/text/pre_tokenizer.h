// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hone/text/vocabulary.h"

namespace hone::text {

// The splitters of known model families, as spelled in their tokenizer.json.
extern const std::string_view kGpt2Pattern;
extern const std::string_view kLlama3Pattern;
extern const std::string_view kQwen2Pattern;

// Sets what a GGUF file's tokenizer.ggml.pre implies, the splitter and Llama-3's ignore_merges.
// Error{Unsupported} naming `where` and the known names for a name that is none of them.
void set_pre_tokenizer(Vocabulary& vocabulary, std::string_view name,
                       std::string_view where = "tokenizer");

// The name to write as tokenizer.ggml.pre; nullopt if GGUF has no name for the splitter.
std::optional<std::string_view> pre_name_for(const Vocabulary& vocabulary);

// Splits "a b" into {"a", "b"}: the spelling of merges in GGUF, merges.txt and older tokenizer.json
// files. Throws Error{CorruptFile} that names `where`.
std::pair<std::string, std::string> split_merge(std::string_view merge, std::string_view where);

}  // namespace hone::text
