// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/json_io.h"
#include "hone/text/tokenizer.h"

namespace hone::app {

// The tokenizer of a model (anything model_io opens; its weights are not looked at where the
// tokenizer lies in a file of its own), of a vocabulary-only GGUF, or of a tokenizer file by
// itself. Error{NotFound}, Error{CorruptFile}, Error{Unsupported}.
std::shared_ptr<const text::Tokenizer> open_any_tokenizer(const std::filesystem::path& model);

// {tokens[], pieces[], bytes}: ids, each as the tokenizer's file spells it, bytes of the text.
Json tokenize(const text::Tokenizer& tokenizer, std::string_view text,
              const text::EncodeOptions& options);

// {tokens[], pieces[], bytes, text}: bytes is the decoded length; in `text` bytes that are no UTF-8
// are U+FFFD. Control tokens are left out unless keep_special.
Json detokenize(const text::Tokenizer& tokenizer, const std::vector<text::TokenId>& ids,
                bool keep_special);

// Ids separated by white space or commas, with or without [ ] around them.
// Error{InvalidArgument} naming the first that is no number.
std::vector<text::TokenId> parse_token_ids(std::string_view list);

}  // namespace hone::app
