// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "hone/core/file/mmap_file.h"
#include "hone/core/format/gguf.h"

namespace hone::model_io {

// One file of a GGUF model.
struct GgufPart {
  std::string where;  // its path
  std::span<const std::byte> bytes;
  GgufFile file;
};

// Maps and parses `path` and, if its split.count is above 1, all other parts of the model, which
// are in the same folder and named <name>-<number>-of-<count>.gguf with five digits each, from
// 00001 on. The first part has the keys of the model; a part may have no tensors. Appends to
// `mappings`, which hold the bytes. Throws Error{NotFound} for a part that is missing, and
// Error{CorruptFile} unless names and keys (split.no, split.count, split.tensors.count) agree, no
// part has another architecture, and every tensor occurs exactly once.
std::vector<GgufPart> map_gguf_parts(const std::filesystem::path& path,
                                     std::vector<MmapFile>& mappings);

}  // namespace hone::model_io
