// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "hone/train/sketch/factored_linear.h"
#include "hone/train/sketch/sketched_conv.h"
#include "hone/train/tensor_file.h"

// Sketched layers in the names and shapes of the library Panther (arXiv 2601.15473), as
// safetensors:
//
//   SKLinear   S1s [L, in, k], S2s [L, k, out], U1s [L, k, out], U2s [L, in, k], bias [out]
//   SKConv2d   S1s [2 L k, in, height, width], U1s [2 L, k, out], bias [out]
//
// each name after a prefix such as "encoder.0.". Entries of U are ±1/√k; the layers keep their
// bits.
namespace hone::nn {

// Throws Error{NotFound} for a missing file. Throws Error{CorruptFile} that names file and tensor
// if a tensor is missing, has another shape or integers, contains NaN or infinity, or is a U with
// entries other than ±1/√k. Without a bias in the file, the layer has none.
FactoredLinear read_panther_linear(const std::filesystem::path& file, std::string_view prefix);

// The file does not contain the geometry of a convolution. Takes stride, padding, dilation and
// padding mode from `geometry`, and everything else from the file.
SketchedConv2d read_panther_conv(const std::filesystem::path& file, std::string_view prefix,
                                 const SketchedConv2dOptions& geometry);

// Returns the tensors of a sketched layer in that form, for write_tensors(). Throws
// Error{InvalidArgument} for a low-rank layer, and for a convolution in groups.
std::vector<NamedTensor> panther_tensors(const FactoredLinearImpl& layer, std::string_view prefix);
std::vector<NamedTensor> panther_tensors(const SketchedConv2dImpl& layer, std::string_view prefix);

}  // namespace hone::nn
