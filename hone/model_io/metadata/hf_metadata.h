// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "hone/core/file/json_io.h"
#include "hone/model_io/metadata/model_metadata.h"

namespace hone::model_io {

// Reads a Hugging Face folder: chat templates, the model card, and keys of GGUF that config.json
// keeps. Anything in them that cannot be read is left out with a warning.
ModelMetadata read_hf_metadata(const std::filesystem::path& folder, const Json& config);

// Only the chat templates: chat_template.jinja and additional_chat_templates/, otherwise those of
// tokenizer_config.json.
void read_hf_chat_templates(const std::filesystem::path& folder, ModelMetadata& out);

// The key `chat_template` of tokenizer_config.json: a string, or a list if there are others than
// the default; null if there is none.
Json chat_template_value(const ModelMetadata& metadata);

// What README.md is to say: the card that the model has, or one of its entries. May be empty.
std::string card_of(const ModelMetadata& metadata);

// The key of config.json that keeps entries for which the card has no place: key → {type, value}.
inline constexpr const char* kGgufMetadata = "gguf_metadata";
// Its value; empty if nothing is to be kept. `card` is that of card_of().
Json gguf_metadata_value(const ModelMetadata& metadata, const std::string& card);

}  // namespace hone::model_io
