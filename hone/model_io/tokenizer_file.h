// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "hone/core/function_ref.h"
#include "hone/model_io/model_file.h"
#include "hone/text/tokenizer.h"

namespace hone::model_io {

// Opens a tokenizer by itself: what text::load_tokenizer_or_throw opens, and the vocabulary of a
// GGUF file. Error{NotFound}, Error{CorruptFile}, Error{Unsupported}.
std::shared_ptr<const text::Tokenizer> open_tokenizer(const std::filesystem::path& path);

// The one a folder has; null where there is none.
std::shared_ptr<const text::Tokenizer> find_tokenizer(const std::filesystem::path& folder);

// What a model opens with: options.tokenizer where given, else what find_own() has. Without either:
// Error{NotFound} when a tokenizer is needed, else null. A kind of tokenizer that hone does not
// serve is a warning where none is needed.
std::shared_ptr<const text::Tokenizer> load_model_tokenizer(
    const OpenOptions& options, const std::string& where,
    FunctionRef<std::shared_ptr<const text::Tokenizer>()> find_own);

}  // namespace hone::model_io
