// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "hone/model_io/architecture.h"
#include "hone/model_io/tensor_plan.h"
#include "hone/train/nn/llama.h"
#include "hone/train/sketch/factored_linear.h"

namespace hone::task {

// Returns an nn::FactoredLinear for a factored layer in this place, with weights of 0.
nn::FactoredLinear new_layer(const model_io::FactoredLayer& layer,
                             const model_io::LayerProduct& product, nn::MatmulBackend backend);

// Returns a new model. Its factored layers (Architecture::factored) are nn::FactoredLinear with
// weights of 0, to be loaded from a file or a checkpoint. All other layers are initialized like
// nn::Llama.
nn::Llama make_llama(const model_io::Architecture& architecture, std::uint64_t seed,
                     nn::MatmulBackend backend = nn::MatmulBackend::Auto);

// Returns the current factored layers of a model. Throws Error{Unsupported} that names a layer that
// a file cannot represent: signs without a seed, an epilogue, or a type other than Linear and
// FactoredLinear.
std::vector<model_io::FactoredLayer> factored_layers_of(nn::LlamaImpl& model);

// Returns model.architecture() with the current factored layers, as for a saved file.
model_io::Architecture architecture_of(nn::LlamaImpl& model);

}  // namespace hone::task
