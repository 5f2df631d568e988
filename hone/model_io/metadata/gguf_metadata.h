// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/format/gguf.h"
#include "hone/model_io/metadata/model_metadata.h"

namespace hone::model_io {

inline constexpr std::string_view kNameKey = "general.name", kLicenseKey = "general.license",
                                  kFileTypeKey = "general.file_type";

// The keys that tell how a file was quantized: they hold while its tensors keep their types.
bool tells_of_types(std::string_view key);

// The sampling defaults general.sampling.* under the names of generation_config.json.
Json read_sampling_defaults(const GgufFile& file);

// The chat templates, and every key that still holds when the model is written anew. Those that
// `file` has been asked for are known, so this comes after all else has been read. Without
// `has_tokenizer`, the keys of the tokenizer are left out, but not its templates.
ModelMetadata read_gguf_metadata(const GgufFile& file, bool has_tokenizer, std::string_view where);

// Only the chat templates.
void read_gguf_chat_templates(const GgufFile& file, std::string_view where, ModelMetadata& out);

// Adds what `writer` does not have yet. `keeps_types`: tells_of_types() holds.
void write_gguf_metadata(const ModelMetadata& metadata, const Json& sampling_defaults,
                         bool keeps_types, GgufWriter& writer);

}  // namespace hone::model_io
