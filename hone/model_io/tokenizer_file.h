// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "hone/core/function_ref.h"
#include "hone/model_io/model_file.h"
#include "hone/text/tokenizer.h"

namespace hone::model_io {

// Opens anything that text::load_tokenizer_or_throw opens, or the vocabulary of a GGUF file. Throws
// Error{NotFound}, Error{CorruptFile} or Error{Unsupported}.
std::shared_ptr<const text::Tokenizer> open_tokenizer(const std::filesystem::path& path);

// The tokenizer in a folder; null if there is none.
std::shared_ptr<const text::Tokenizer> find_tokenizer(const std::filesystem::path& folder);

// If `tokenizer` is not empty, a file or folder that replaces the model's own: its chat templates,
// if it has any, replace those of the model, and the model's keys of its tokenizer are dropped.
void take_tokenizer_metadata(const std::filesystem::path& tokenizer, ModelMetadata& out);

// The tokenizer of a model: options.tokenizer if given, otherwise the result of find_own(). If
// there is neither, throws Error{NotFound} if a tokenizer is needed, otherwise returns null. If
// none is needed, an unsupported kind of tokenizer is only a warning.
std::shared_ptr<const text::Tokenizer> load_model_tokenizer(
    const OpenOptions& options, const std::string& where,
    FunctionRef<std::shared_ptr<const text::Tokenizer>()> find_own);

}  // namespace hone::model_io
