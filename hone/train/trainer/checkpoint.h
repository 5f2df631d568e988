// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hone/core/json_io.h"
#include "hone/train/tensor_file.h"

namespace hone::trainer {

using CheckpointTensor = NamedTensor;

// Everything a run needs to go on as if it had not stopped.
struct Checkpoint {
  Index step = 0;                         // steps done
  Json facts = Json::object();            // configuration, best validation, versions …
  std::vector<CheckpointTensor> weights;  // weights.safetensors
  std::vector<CheckpointTensor> state;    // state.safetensors: optimizer, random generators
};

// A folder of checkpoints `step_<8 digits>/`, each two safetensors files and a manifest.json that
// holds their sizes and SHA-256, and the facts and theirs. Written aside, synced, renamed: a kill
// at any moment leaves whole checkpoints only.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::filesystem::path folder);

  // Then removes all but the newest `keep` and the one of step `best` (where it exists).
  void save(const Checkpoint& checkpoint, Index keep, std::optional<Index> best);
  // The newest checkpoint whose bytes are what its manifest says; damaged ones are skipped with a
  // warning that names them and what is wrong. Nothing when there is none; Error{CorruptFile} when
  // all are damaged.
  std::optional<Checkpoint> load_newest() const;
  // Error{CorruptFile} naming the file that is damaged.
  Checkpoint load(Index step) const;
  // Steps of the checkpoint folders, ascending, whole or not.
  std::vector<Index> steps() const;
  std::filesystem::path path_of(Index step) const;
  // Removes every checkpoint.
  void clear() const;

 private:
  void remove(Index step) const;

  std::filesystem::path folder_;
};

}  // namespace hone::trainer
