// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "hone/core/mmap_file.h"

namespace hone {

struct NamedTensor {
  std::string name;
  torch::Tensor value;
};

// A safetensors file of these: f32, f64, bf16, f16, i64, i8 and u8, else Error{Unsupported} naming
// the tensor. Written aside, synced, renamed.
void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);
// Copies of a safetensors file's tensors. Error{CorruptFile} for what is no such file and for other
// types.
std::vector<NamedTensor> read_tensors(const MmapFile& file);

}  // namespace hone
