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
// Error{Unsupported} that names the tensor if its type is not a real number, Error{InvalidArgument}
// if it is undefined.
// Calls `written` with the bytes of each tensor when it is written, and adds all bytes of the file
// to `hash`; both may be empty.
void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                   const SafetensorsMetadata& metadata = {},
                   const std::function<void(Index bytes)>& written = {}, Sha256* hash = nullptr);
// Copies of a safetensors file's tensors. Throws Error{CorruptFile} for any other file and
// one that is truncated meanwhile, and Error{Unsupported} for a type that LibTorch does not have.
std::vector<NamedTensor> read_tensors(const MmapFile& file);

}  // namespace hone
