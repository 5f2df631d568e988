// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "hone/core/mmap_file.h"
#include "hone/core/safetensors.h"

namespace hone {

struct NamedTensor {
  std::string name;
  torch::Tensor value;
};

// A safetensors file of these; Error{Unsupported} naming the tensor for a type that is no real
// number. Written aside, synced, renamed.
void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                   const SafetensorsMetadata& metadata = {});
// Copies of a safetensors file's tensors. Error{CorruptFile} for what is no such file,
// Error{Unsupported} for a type that LibTorch has not.
std::vector<NamedTensor> read_tensors(const MmapFile& file);

}  // namespace hone
