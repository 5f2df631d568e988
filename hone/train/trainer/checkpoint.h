// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/train/tensor_file.h"

namespace hone::trainer {

using CheckpointTensor = NamedTensor;

// Everything that a run needs to continue as if it had not stopped.
struct Checkpoint {
  Index step = 0;                         // steps done
  Json facts = Json::object();            // configuration, best validation, versions …
  std::vector<CheckpointTensor> weights;  // weights.safetensors
  std::vector<CheckpointTensor> state;    // state.safetensors: optimizer, random generators
};

// A folder of checkpoints `step_<8 digits>/`, each with two safetensors files and a manifest.json
// with their sizes and SHA-256, and the facts with their SHA-256. Checkpoints are written to a
// temporary folder, synced and renamed, so that a kill at any moment leaves only complete ones.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::filesystem::path folder);

  // Saves the checkpoint, then removes all but the newest `keep` and the one of step `best` (if it
  // exists).
  void save(const Checkpoint& checkpoint, Index keep, std::optional<Index> best);
  // Returns the newest checkpoint that matches its manifest. Skips damaged ones with a warning that
  // names them and the damage. Empty if there are no checkpoints. Throws Error{CorruptFile} if all
  // are damaged.
  std::optional<Checkpoint> load_newest() const;
  // Returns the facts of the newest checkpoint from its manifest, without reading tensors; empty if
  // there are no checkpoints.
  std::optional<Json> newest_facts() const;
  // Throws Error{CorruptFile} that names the damaged file.
  Checkpoint load(Index step) const;
  // The steps of all checkpoint folders in ascending order, including damaged ones.
  std::vector<Index> steps() const;
  std::filesystem::path path_of(Index step) const;
  // Removes every checkpoint.
  void clear() const;
  // Calls check_disk() with the free space of the folder.
  void check_disk(Index bytes, Index keep) const;

 private:
  void remove(Index step) const;
  // Calls read(step) from the newest step on until one does not throw.
  template <class Read>
  auto read_newest(const Read& read) const -> std::optional<decltype(read(Index{}))>;

  std::filesystem::path folder_;
};

Index bytes_of(const std::vector<CheckpointTensor>& tensors);

// Throws Error{Resource} that names `folder` if a checkpoint of `bytes` does not fit in the `free`
// bytes of a disk that already has `stored` checkpoints. Warns if the maximum number of
// simultaneous checkpoints does not fit: the `keep` newest ones and the next one.
void check_disk(const std::filesystem::path& folder, Index free, Index bytes, Index keep,
                Index stored);

}  // namespace hone::trainer
