// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "hone/model_io/factored_config.h"
#include "hone/train/nn/vision.h"

namespace hone::task {

// In a classifier a nn::FactoredLinear instead of a linear layer ("fc"), or a nn::SketchedConv2d
// instead of a convolution ("layer1.0.conv1"). A file does not have the buffer `sketch` of a
// sketched layer, whose recipe the entry is.
using model_io::FactoredLayer;

// The factored layers of a classifier, in its order. Error{Unsupported} that names a layer which
// factor_layers() could not make again: one of another type, with given signs, with an epilogue, of
// another geometry than the convolutions of classifiers have, or of a higher rank than it takes.
std::vector<FactoredLayer> factored_layers_of(nn::VisionNetImpl& net);

// Replaces dense layers of the net by factored ones, whose tensors the source gives by their names
// ("fc.a", "fc.b", "fc.bias") in the order of the module's parameters. Error{CorruptFile} that
// names `where` and the path unless it is that of a dense layer, the rank is at most 256 or 4 times
// the smaller side of the layer's matrix, and a sketched layer's rank is a multiple of 2 * terms.
void factor_layers(nn::VisionNetImpl& net, const std::vector<FactoredLayer>& layers,
                   const nn::TensorSource& source, std::string_view where);
// Replaces the layers that are factored in the classifier of this safetensors file, according to
// config.json beside it, and whose tensors fit the net's layers, which they fill. Nothing if
// config.json is of another format or not there.
void factor_layers_like(nn::VisionNetImpl& net, const std::filesystem::path& weights);

}  // namespace hone::task
