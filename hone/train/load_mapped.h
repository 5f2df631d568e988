// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hone/core/file/mmap_file.h"
#include "hone/core/index.h"

namespace hone {

struct MapOptions {
  // Whether a tensor of the module that the files lack, or one of the files that the module lacks,
  // is an error.
  bool strict = true;
};

// What load_mapped() did.
struct MappedWeights {
  Index mapped = 0;                     // tensors that view the files
  Index copied = 0;                     // those that begin at an address that their type forbids
  std::vector<std::string> missing;     // of the module, not in the files
  std::vector<std::string> unexpected;  // in the files, not of the module
  std::vector<std::shared_ptr<const MmapFile>> files;

  // Throws Error{CorruptFile} if a file was truncated or changed since: tensors may have zeros.
  void check_intact() const;
};

// Makes the parameters and buffers of a module on the CPU views of a mapped model: a safetensors
// file, or a folder with model.safetensors or the shards of model.safetensors.index.json. Opening
// takes the same time whatever the size; pages are read when they are used, and processes share
// them. Writing to a tensor, as optimizers do, copies the pages in question for this process; the
// files never change. The tensors keep the mapping, and gradients and requires_grad stay.
//
// Names are those of nn::parameters_by_path(), and types and shapes must be those of the files. Of
// parameters that several names share, the files need one name. Throws, and changes nothing:
// Error{NotFound}, Error{CorruptFile} for damaged files, and Error{InvalidArgument} that names
// tensors of another shape or type or, with `strict`, missing and unexpected ones.
MappedWeights load_mapped(torch::nn::Module& module, const std::filesystem::path& model,
                          const MapOptions& options = {});

}  // namespace hone
