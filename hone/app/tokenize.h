// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/text/tokenizer.h"

namespace hone::app {

// Opens the tokenizer of a model that model_io can open, of a vocabulary-only GGUF, or from a
// tokenizer file. The weights are not read if the tokenizer is a separate file. Throws
// Error{NotFound}, Error{CorruptFile} or Error{Unsupported}.
std::shared_ptr<const text::Tokenizer> open_any_tokenizer(const std::filesystem::path& model);

// {tokens[], pieces[], bytes}: the ids, their spellings in the tokenizer's file, and the number of
// bytes of the text.
Json tokenize(const text::Tokenizer& tokenizer, std::string_view text,
              const text::EncodeOptions& options);

// {tokens[], pieces[], bytes, text}: bytes is the decoded length; bytes that are not UTF-8 become
// U+FFFD in `text`. Control tokens are left out unless keep_special.
Json detokenize(const text::Tokenizer& tokenizer, const std::vector<text::TokenId>& ids,
                bool keep_special);

// Parses ids separated by white space or commas, optionally in [ ]. Throws Error{InvalidArgument}
// that names the first word that is not an id.
std::vector<text::TokenId> parse_token_ids(std::string_view list);

}  // namespace hone::app
