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

  // Then removes all but the newest `keep` and the one of step `best` (where it exists).
  void save(const Checkpoint& checkpoint, Index keep, std::optional<Index> best);
  // The newest checkpoint that matches its manifest; damaged ones are skipped with a warning that
  // names them and the damage. Nothing if there is none; throws Error{CorruptFile} if all are
  // damaged.
  std::optional<Checkpoint> load_newest() const;
  // Its facts by its manifest alone, without reading tensors; nothing if there is none.
  std::optional<Json> newest_facts() const;
  // Throws Error{CorruptFile} that names the damaged file.
  Checkpoint load(Index step) const;
  // The steps of all checkpoint folders in ascending order, including damaged ones.
  std::vector<Index> steps() const;
  std::filesystem::path path_of(Index step) const;
  // Removes every checkpoint.
  void clear() const;
  // check_disk() for what is free where they are stored.
  void check_disk(Index bytes, Index keep) const;

 private:
  void remove(Index step) const;
  // Calls read(step) from the newest step on until one does not throw.
  template <class Read>
  auto read_newest(const Read& read) const -> std::optional<decltype(read(Index{}))>;

  std::filesystem::path folder_;
};

Index bytes_of(const std::vector<CheckpointTensor>& tensors);

// Throws Error{Resource} naming `folder` if a checkpoint of `bytes` does not fit in the `free`
// bytes of a disk that has `stored` checkpoints already; warns if not all fit that are there at a
// time: the `keep` newest ones and the next one.
void check_disk(const std::filesystem::path& folder, Index free, Index bytes, Index keep,
                Index stored);

}  // namespace hone::trainer
