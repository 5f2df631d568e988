// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "hone/compress/model.h"
#include "hone/core/file/folder_lock.h"
#include "hone/core/file/json_io.h"

namespace hone::compress {

// The finished steps of a run in a folder, so that a killed run continues where it was. A step is
// the change of one layer by one pass, with its evidence. The folder is locked while the object
// lives.
class StepStore {
 public:
  // `key` tells runs apart. Steps of a run with another key are removed. Throws Error{Resource} if
  // another run uses the folder, and Error{InvalidArgument} if it has files of somebody else.
  StepStore(std::filesystem::path folder, const std::string& key);

  // Small results of a run by name, such as the calibration text.
  std::optional<std::string> text(const std::string& name) const;
  void save_text(const std::string& name, const std::string& text) const;

  // Applies a saved step to `model` and returns its evidence; empty if there is none. Throws
  // Error{CorruptFile} that names a damaged file.
  std::optional<Json> restore(const std::string& step, Model& model) const;
  // Saves how `model` differs from `before` in tensors and in the sizes of `layer`.
  void save(const std::string& step, const Model& before, const Model& model, Index layer,
            const Json& evidence) const;

  // Removes the steps and the folder, once the run has written its output. Nothing may be saved
  // afterwards.
  void finish();

 private:
  std::filesystem::path path_of(const std::string& step) const;
  void clear() const;

  std::filesystem::path folder_;
  std::optional<FolderLock> lock_;
};

}  // namespace hone::compress
