// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hone/core/dtype.h"
#include "hone/model_io/architecture.h"

namespace hone::infer {

// Int8 has an f16 scale per token and KV head, for keys and for values.
enum class KvDtype { Float16, Float32, Int8 };
std::string_view name_of(KvDtype dtype);  // "f16", "f32", "int8"
Dtype cell_dtype(KvDtype dtype);

// Bytes of the KV cache of one sequence while the last of its `tokens` tokens is computed:
//   sum over layers of blocks * 32 * kv_heads * (2 * head_dim * w + scales),
// with w = 2 (f16), 4 (f32) or 1 byte (int8), and scales = 4 bytes for int8, otherwise 0. A block
// holds 32 tokens: layers without a window have ceil(tokens / 32) blocks. Layers with a window have
// only the blocks that this token reads and the block that it is written to.
Index kv_cache_bytes(const model_io::Architecture& architecture, KvDtype dtype, Index tokens);

// Bytes that one token takes in all layers, until it leaves their windows.
Index kv_token_bytes(const model_io::Architecture& architecture, KvDtype dtype);

}  // namespace hone::infer
