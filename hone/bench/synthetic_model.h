// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

#include "hone/model_io/architecture.h"

namespace hone::bench {

// "llama-1b" (22 layers, width 2048, 32/4 heads, ffn 5632) or "llama-160m" (12 layers, width 768,
// 12/12 heads, ffn 3072), both with 32,000 tokens, or "llama3-1b" (16 layers, width 2048, 32/8
// heads, ffn 8192, 128,256 tokens, tied embeddings). Throws Error{InvalidArgument} for another
// name.
model_io::Architecture shape_architecture(std::string_view shape);

// A GGUF file of that shape with seeded random weights and a generated vocabulary, for timing only:
// the values have a realistic spread but no meaning, because blocks are random bits. Written once
// into `folder`, then reused. `dtype` is the type of all matrices: q8_0, q4_0, q4_k, q5_k or q6_k,
// or q4_k_m, llama.cpp's mixture of q4_k and q6_k. Throws Error{InvalidArgument} for another name.
std::filesystem::path synthetic_model(std::string_view shape, std::string_view dtype,
                                      const std::filesystem::path& folder);

}  // namespace hone::bench
