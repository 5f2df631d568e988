// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "hone/core/file/json_io.h"
#include "hone/infer/engine_options.h"
#include "hone/infer/request.h"
#include "hone/model_io/model_file.h"

namespace hone::infer {

// A model whose header and tokenizer have been read, but not its weights. Callers that already have
// a request can check it here, because reading the weights of a large model takes long.
class ModelHeader {
 public:
  // Throws Error{NotFound, CorruptFile, Unsupported} as model_io does, and Error{InvalidArgument}
  // for options that do not fit the model: a context above its own, a KV cache that exceeds the
  // free memory or is too small for any text, or a draft model with another vocabulary.
  static ModelHeader open_or_throw(const std::filesystem::path& model,
                                   const EngineOptions& options);

  // EngineOptions::context or the model's own.
  Index context() const;
  Index vocab_size() const { return file_->architecture().vocab_size; }
  // The sampling defaults of generation_config.json; an empty object if there are none.
  const Json& generation_defaults() const { return file_->generation_defaults(); }
  // The model's chat template in Jinja; empty if it has none.
  std::string chat_template() const;
  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  // Throws Error{Unsupported} if the model has none.
  const text::Tokenizer& tokenizer() const;
  // Throws what Engine::submit() would throw, except errors of the schema, and errors of a prompt
  // that fits in the context but not in the KV cache.
  void check(const Request& request) const;

 private:
  friend class Engine;
  ModelHeader(std::unique_ptr<model_io::ModelFile> file, const EngineOptions& options);

  EngineOptions options_;
  std::unique_ptr<model_io::ModelFile> file_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;  // may be null
  std::unique_ptr<model_io::ModelFile> draft_;        // null without a draft model
};

}  // namespace hone::infer
