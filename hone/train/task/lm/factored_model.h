// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "hone/model_io/architecture.h"
#include "hone/model_io/tensor_plan.h"
#include "hone/train/nn/llama.h"
#include "hone/train/sketch/factored_linear.h"

namespace hone::task {

// The nn::FactoredLinear that stands for a factored layer in this place, with weights of 0.
nn::FactoredLinear new_layer(const model_io::FactoredLayer& layer,
                             const model_io::LayerProduct& product, nn::MatmulBackend backend);

// A new model, whose factored layers (Architecture::factored) are nn::FactoredLinear with weights
// of 0, to be loaded from a file or a checkpoint; all others begin as those of nn::Llama.
nn::Llama make_llama(const model_io::Architecture& architecture, std::uint64_t seed,
                     nn::MatmulBackend backend = nn::MatmulBackend::Auto);

// What the products of a model are now. Throws Error{Unsupported} that names the layer where a file
// cannot say it: signs that no seed draws, an epilogue, or a layer of another type than Linear and
// FactoredLinear.
std::vector<model_io::FactoredLayer> factored_layers_of(nn::LlamaImpl& model);

// model.architecture() with its factored layers: that of the file that it can be saved to.
model_io::Architecture architecture_of(nn::LlamaImpl& model);

}  // namespace hone::task
