// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "hone/core/file/json_io.h"
#include "hone/model_io/metadata/model_metadata.h"
#include "hone/text/tokenizer.h"
#include "hone/train/nn/llama.h"

namespace hone::task {

// What a model folder holds besides the model.
struct ExportParts {
  const text::Tokenizer* tokenizer = nullptr;  // none is written if null
  Json generation_defaults = Json::object();   // of sampling
  model_io::ModelMetadata metadata = {};       // chat templates, license, …
  Index context = 0;                           // in config.json; 0: the model's
};

// Writes a model, on whatever device, as a Hugging Face folder in f32 (write_hugging_face), with
// its factored layers as they are. Throws Error{Unsupported} for layers that the format cannot hold
// (factored_layers_of).
void export_lm(const std::filesystem::path& folder, nn::LlamaImpl& model, const ExportParts& parts);

}  // namespace hone::task
