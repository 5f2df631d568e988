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
  // With half-split RoPE, norms as a Hugging Face folder stores them, and the model's own context.
  model_io::Architecture architecture;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  Json generation_defaults = Json::object();  // of sampling, for the trained model
  model_io::ModelMetadata metadata;           // for the trained model, too
  std::filesystem::path path;
  // Null in a run that goes on and has its weights.
  std::shared_ptr<const model_io::ModelFile> file;
};

// A Hugging Face folder, a GGUF or llama2.c file, or the folder of a finished run. Throws what
// model_io::open_model_or_throw does, also if there is no tokenizer, and Error{Unsupported} for
// traits that nn::Llama cannot have (nn::check_trainable), RoPE that the config.json of the trained
// model cannot, or a tokenizer that tokenizer.json cannot express.
InitialModel open_initial_model(const std::filesystem::path& init);

// What a run keeps of it in order to be resumed without it: a Hugging Face folder without weights.
// A folder that has other files is refused with Error{InvalidArgument}.
void write_initial_model(const std::filesystem::path& folder, const InitialModel& model);
InitialModel read_initial_model(const std::filesystem::path& folder);

// The model of config.model.init, read from the folder `kept` if that is there; nothing if the key
// is empty. The configuration becomes that of with_architecture().
std::optional<InitialModel> take_initial_model(LmConfig& config,
                                               const std::filesystem::path& kept = {});

}  // namespace hone::task
