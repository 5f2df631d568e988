// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/json_io.h"
#include "hone/model_io/json_fields.h"
#include "hone/train/nn/vision.h"
#include "hone/train/sketch/factored_linear.h"

namespace hone::task {

// A layer of a classifier that is a nn::FactoredLinear instead of a linear layer, or a
// nn::SketchedConv2d instead of a convolution.
struct FactoredLayer {
  std::string path;  // "layer1.0.conv1", "fc"
  nn::FactorMode mode = nn::FactorMode::LowRank;
  Index rank = 0;
  // Of a sketched layer. They are its recipe, so that a file does not have the buffer `sketch`.
  Index terms = 1;
  std::uint64_t seed = 0;

  friend bool operator==(const FactoredLayer&, const FactoredLayer&) = default;
};

// The factored layers of a classifier, in its order. Error{Unsupported} that names a layer which
// factor_layers() could not make again: one of another type, with given signs, with an epilogue, of
// another geometry than the convolutions of classifiers have, or of a higher rank than it takes.
std::vector<FactoredLayer> factored_layers_of(nn::VisionNetImpl& net);

// {"layer1.0.conv1": {"mode": "sketched", "rank": 96, "terms": 6, "seed": 3},
//  "fc": {"mode": "low_rank", "rank": 32}}
Json factored_json(const std::vector<FactoredLayer>& layers);
// The entries of config's key "factored_layers", where terms may be left out; none if it is absent.
// Error{CorruptFile} that names the file and the key.
std::vector<FactoredLayer> read_factored_layers(const model_io::JsonFields& config);

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
