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
  // If true, missing and unexpected tensors are errors.
  bool strict = true;
};

// The result of load_mapped().
struct MappedWeights {
  Index mapped = 0;  // tensors that view the files
  Index copied = 0;  // tensors whose address in the file is not aligned for their type
  std::vector<std::string> missing;     // in the module, not in the files
  std::vector<std::string> unexpected;  // in the files, not in the module
  std::vector<std::shared_ptr<const MmapFile>> files;

  // Throws Error{CorruptFile} if a file was truncated or changed after the load: tensors may
  // contain zeros.
  void check_intact() const;
};

// Makes the parameters and buffers of a module on the CPU views of a mapped model: a safetensors
// file, or a folder with model.safetensors or the shards of model.safetensors.index.json. Opening
// takes constant time: pages are read on first use, and processes share them. A write to a tensor,
// as by an optimizer, copies the affected pages for this process; the files never change. The
// tensors own the mapping. Gradients and requires_grad are unchanged.
//
// Names are those of nn::parameters_by_path(). Types and shapes must match the files. For a
// parameter with several names, the files need one of them. Throws, and changes nothing:
// Error{NotFound}, Error{CorruptFile} for damaged files, and Error{InvalidArgument} that names
// tensors of another shape or type or, with `strict`, missing and unexpected ones.
MappedWeights load_mapped(torch::nn::Module& module, const std::filesystem::path& model,
                          const MapOptions& options = {});

}  // namespace hone
