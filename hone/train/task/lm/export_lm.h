// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "hone/core/file/json_io.h"
#include "hone/model_io/metadata/model_metadata.h"
#include "hone/text/tokenizer.h"
#include "hone/train/nn/llama.h"

namespace hone::task {

// The contents of a model folder besides the model.
struct ExportParts {
  const text::Tokenizer* tokenizer = nullptr;  // null: none is written
  Json generation_defaults = Json::object();   // sampling defaults
  model_io::ModelMetadata metadata = {};       // chat templates, license, …
  Index context = 0;                           // for config.json; 0: the context of the model
};

// Writes a model on any device as a Hugging Face folder in f32 (write_hugging_face). Factored
// layers stay factored. Throws Error{Unsupported} for layers that the format cannot represent
// (factored_layers_of).
void export_lm(const std::filesystem::path& folder, nn::LlamaImpl& model, const ExportParts& parts);

}  // namespace hone::task
