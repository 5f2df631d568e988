// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/format/bitmask.h"
#include "hone/core/format/safetensors.h"
#include "hone/model_io/model_file.h"

namespace hone::model_io {

// hone's packed artifact (docs/formats.md): a quantized matrix L is stored as the U8 tensors
// L.codes, L.scales and L.zeros, each padded to a multiple of 64 bytes. Blocks of GGUF are L.codes
// alone. Of a matrix that is stored without its zeros (core/format/bitmask.h), L.codes has the kept
// elements, dense ones included, and L.mask their places. The metadata key kManifestKey describes
// them.
inline constexpr std::string_view kFormatKey = "hone.format";
inline constexpr std::string_view kFormatVersion = "1";
inline constexpr std::string_view kManifestKey = "hone.tensors";
inline constexpr Index kBlobAlignment = 64;

// One quantized matrix of the manifest.
struct ManifestEntry {
  std::string name;
  QuantSpec spec;                  // of canonical codes
  std::optional<GgufType> blocks;  // or blocks of GGUF, row by row
  std::optional<Dtype> dense;      // or values, of which the zeros are left out
  Index rows = 0, cols = 0;
  bool act_int8 = true;
  std::string algorithm;                   // how the codes were chosen; informational
  std::optional<MaskedSizes> masked = {};  // if zeros are left out
};

struct BlobSizes {
  Index mask = 0, codes = 0, scales = 0, zeros = 0;  // without padding
};
// Checks for overflow; `where` names the file and the tensor.
BlobSizes blob_sizes(const ManifestEntry& entry, std::string_view where);

std::string write_manifest(std::span<const ManifestEntry> entries);

// Moves the matrices of the manifest from `file` to `out`; the plain tensors remain in `file`.
// Matrices without their zeros are expanded into `owned`. Another
// format version, a missing blob or one of the wrong size, or an entry out of range throws
// Error{CorruptFile}.
void extract_quantized(SafetensorsFile& file, std::vector<NamedMatrix>& out,
                       std::vector<Buffer>& owned, const std::string& where);

}  // namespace hone::model_io
