// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hone/core/format/quant_format.h"

namespace hone {

// Returns how a matrix is stored: "f16", "q4_k", "int4:g32:asym".
std::string type_text(const StoredMatrix& matrix);

// Returns the quantized GGUF type with this name ("q4_k"), or nothing if there is none.
std::optional<GgufType> find_block_type(std::string_view name);
std::string block_type_text(GgufType type);
// The type of dense weights with this name: "f32", "f16" or "bf16".
std::optional<Dtype> find_dense_type(std::string_view name);

}  // namespace hone
