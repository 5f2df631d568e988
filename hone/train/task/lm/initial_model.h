// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "hone/core/file/json_io.h"
#include "hone/model_io/model_file.h"
#include "hone/text/tokenizer.h"
#include "hone/train/task/lm/lm_config.h"

namespace hone::task {

// The model that training starts from (model.init).
struct InitialModel {
  // Has half-split RoPE, norms as in a Hugging Face folder, and the model's own context.
  model_io::Architecture architecture;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  Json generation_defaults = Json::object();  // sampling defaults for the trained model
  model_io::ModelMetadata metadata;           // for the trained model, too
  std::filesystem::path path;
  // Null in a resumed run, which has its own weights.
  std::shared_ptr<const model_io::ModelFile> file;
};

// Opens a Hugging Face folder, a GGUF or llama2.c file, or the folder of a finished run. Throws
// like model_io::open_model_or_throw, also if there is no tokenizer. Throws Error{Unsupported} for
// traits that nn::Llama does not support (nn::check_trainable), RoPE that config.json cannot
// represent, or a tokenizer that tokenizer.json cannot represent.
InitialModel open_initial_model(const std::filesystem::path& init);

// Writes what a run needs to resume without the initial model: a Hugging Face folder without
// weights. Throws Error{InvalidArgument} for a folder that has other files.
void write_initial_model(const std::filesystem::path& folder, const InitialModel& model);
InitialModel read_initial_model(const std::filesystem::path& folder);

// Returns the model of config.model.init, read from the folder `kept` if it exists; nothing if the
// key is empty. Changes the configuration to that of with_architecture().
std::optional<InitialModel> take_initial_model(LmConfig& config,
                                               const std::filesystem::path& kept = {});

}  // namespace hone::task
