// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hone/core/file/mmap_file.h"
#include "hone/core/format/safetensors.h"

namespace hone {

struct NamedTensor {
  std::string name;
  torch::Tensor value;
};

// Writes a safetensors file atomically: to a temporary file that is synced and then renamed. Throws
// Error{Unsupported} that names the tensor if its type is not a real number, and
// Error{InvalidArgument} if it is undefined. After each tensor, calls `written` with its bytes.
// Adds all bytes of the file to `hash`. Both may be empty.
void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                   const SafetensorsMetadata& metadata = {},
                   const std::function<void(Index bytes)>& written = {}, Sha256* hash = nullptr);
// Returns copies of the tensors of a safetensors file. Throws Error{CorruptFile} for any other
// file, or if the file is truncated meanwhile, and Error{Unsupported} for a type that LibTorch does
// not have.
std::vector<NamedTensor> read_tensors(const MmapFile& file);
// Copies of the tensors of a file that is mapped. Throws Error{Unsupported} like read_tensors().
std::vector<NamedTensor> copy_tensors(const SafetensorsFile& file);

}  // namespace hone
