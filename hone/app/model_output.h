// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "hone/model_io/write_model.h"

namespace hone::app {

// Where a command writes a model, and in what format.
class ModelOutput {
 public:
  // `to` is hf, hone, gguf or llama2c. If it is empty, the name decides: *.gguf, *.bin (llama2.c,
  // where `bin` is true), or a folder in the format `folder`. Throws Error{InvalidArgument} that
  // names `op` for another `to` and for a path without a name.
  ModelOutput(std::filesystem::path path, std::string_view to, model_io::ModelFormat folder,
              std::string_view op, bool bin = true);

  const std::filesystem::path& path() const { return path_; }
  model_io::ModelFormat format() const { return format_; }
  bool is_folder() const;
  // The same format at another place.
  ModelOutput at(std::filesystem::path path) const;

  // Throws Error{InvalidArgument} if writing would change or remove one of the inputs, of which
  // some may be empty, or replace what is not a model.
  void check(std::span<const std::filesystem::path> inputs) const;
  // Only hone's artifact takes notes.
  model_io::WriteReport write(const model_io::ModelSource& source,
                              std::optional<model_io::StoreType> type,
                              const model_io::ArtifactNotes& notes = {}) const;

 private:
  std::filesystem::path path_;
  model_io::ModelFormat format_;
};

}  // namespace hone::app
