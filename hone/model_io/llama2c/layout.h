// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/model_io/architecture.h"

namespace hone::model_io {

// The format of llama2.c (karpathy/llama2.c, export.py). A legacy file ("version 0") has a header
// of seven i32; versions 1 and 2 begin with a magic word and have a header of 256 bytes.
inline constexpr std::uint32_t kLlama2cMagic = 0x616b3432;
inline constexpr Index kLlama2cLegacyHeader = 28, kLlama2cHeader = 256;
inline constexpr double kLlama2cTheta = 10000, kLlama2cEps = 1e-5;

// One run of values: a tensor of every layer, or one that is not part of a layer.
struct Llama2cBlock {
  std::string part;  // the name within a layer ("mlp.up_proj.weight") or the whole name
  bool per_layer = false;
  Index rows = 0, cols = 0;  // vectors have rows = 1
  bool is_vector = false;
};

// The blocks in file order, without the end of legacy files: two unused RoPE tables (see
// llama2c_table_values()), then the output matrix unless it is shared.
std::vector<Llama2cBlock> llama2c_blocks(const Architecture& architecture, bool legacy);

// The number of f32 values in the two RoPE tables of a legacy file.
Index llama2c_table_values(const Architecture& architecture);

}  // namespace hone::model_io
