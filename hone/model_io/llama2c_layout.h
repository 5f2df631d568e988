// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/model_io/architecture.h"

namespace hone::model_io {

// llama2.c (karpathy/llama2.c, export.py). A legacy file ("version 0") has a header of seven i32;
// versions 1 and 2 begin with a magic word and have 256 bytes of header.
inline constexpr std::uint32_t kLlama2cMagic = 0x616b3432;
inline constexpr Index kLlama2cLegacyHeader = 28, kLlama2cHeader = 256;
inline constexpr double kLlama2cTheta = 10000, kLlama2cEps = 1e-5;

// One run of values: the tensor of every layer, or one that all share.
struct Llama2cBlock {
  std::string part;  // name in a layer ("mlp.up_proj.weight") or whole name
  bool per_layer = false;
  Index rows = 0, cols = 0;  // vectors have rows = 1
  bool is_vector = false;
};

// The blocks in file order. Legacy files end with two unused RoPE tables (and the output matrix
// after them where it is not shared), which this list leaves out: see llama2c_table_values().
std::vector<Llama2cBlock> llama2c_blocks(const Architecture& architecture, bool legacy);

// f32 values in the two RoPE tables of a legacy file.
Index llama2c_table_values(const Architecture& architecture);

}  // namespace hone::model_io
