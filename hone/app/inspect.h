// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "hone/core/file/json_io.h"

namespace hone::app {

struct InspectOptions {
  std::filesystem::path file;
  std::filesystem::path tokenizer;  // used if the file has none
  bool stats = false;  // read every weight for the min, max, NaN and inf counts of each tensor
};

// Describes a model file: the document of `hone inspect --json` with format, architecture,
// tensors[]{name,dtype,shape,bytes}, parameters, bytes, kv_bytes_per_token (f16), kv_cache{f16,
// f32, int8: {bytes_per_token, bytes_at_context}} of one sequence, tied, rope{}, tokenizer{} or
// null. Reads only headers, unless `stats`.
// Also opens a lone safetensors file, and a GGUF file that has only a vocabulary or an architecture
// that hone does not serve. Their documents have no architecture-dependent fields. For an image
// classifier, "architecture" contains its config.json, including the side of images in pixels;
// "classes" has the names of the classes, and "parameters" does not count buffers.
Json inspect_file(const InspectOptions& options);

}  // namespace hone::app
