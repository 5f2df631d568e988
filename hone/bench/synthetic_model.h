// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

#include "hone/model_io/architecture.h"
#include "hone/model_io/write_model.h"

namespace hone::bench {

// "llama-1b" (22 layers, width 2048, 32/4 heads, ffn 5632) or "llama-160m" (12 layers, width 768,
// 12/12 heads, ffn 3072), both with 32,000 tokens. Error{InvalidArgument} on another name.
model_io::Architecture shape_architecture(std::string_view shape);

// A GGUF file of that shape with seeded random weights of the type and a generated vocabulary, for
// timing only: the values have a realistic spread but no meaning. Written once into `folder`, then
// reused. type: Q8_0 or Q4_0.
std::filesystem::path synthetic_model(std::string_view shape, model_io::StoreType type,
                                      const std::filesystem::path& folder);

}  // namespace hone::bench
