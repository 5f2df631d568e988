// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "hone/model_io/factored_config.h"
#include "hone/train/nn/vision.h"

namespace hone::task {

// A factored layer of a classifier: an nn::FactoredLinear instead of a linear layer ("fc"), or an
// nn::SketchedConv2d instead of a convolution ("layer1.0.conv1"). Files omit the buffer `sketch` of
// a sketched layer, because this entry has its recipe.
using model_io::FactoredLayer;

// Returns the factored layers of a classifier, in its order. Throws Error{Unsupported} that names a
// layer that factor_layers() could not recreate: another type, given signs, an epilogue, a geometry
// that convolutions of classifiers do not have, or a rank above the limit.
std::vector<FactoredLayer> factored_layers_of(nn::VisionNetImpl& net);

// Replaces dense layers of the net by factored ones. `source` gives their tensors by name ("fc.a",
// "fc.b", "fc.bias") in the order of the module's parameters. Throws Error{CorruptFile} that names
// `where` and the path if the path is not that of a dense layer. Also throws it if the rank is
// above both 256 and 4 times the smaller side of the layer's matrix, or if the rank of a sketched
// layer is not a multiple of 2 * terms.
void factor_layers(nn::VisionNetImpl& net, const std::vector<FactoredLayer>& layers,
                   const nn::TensorSource& source, std::string_view where);
// Factors the layers that are factored in the classifier of this safetensors file, according to the
// config.json beside it, if their tensors fit the layers of the net. Loads these tensors. Does
// nothing if config.json has another format or does not exist.
void factor_layers_like(nn::VisionNetImpl& net, const std::filesystem::path& weights);

}  // namespace hone::task
