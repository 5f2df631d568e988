// SPDX-License-Identifier: Apache-2.0
#include "hone/core/format/matrix_type.h"

#include <algorithm>

namespace hone {

std::string type_text(const StoredMatrix& matrix) {
  if (matrix.layout == WeightLayout::Canonical) return to_text(matrix.quant.spec);
  if (matrix.layout == WeightLayout::Dense) return std::string(name_of(matrix.dtype));
  return block_type_text(matrix.block_type);
}

std::optional<GgufType> find_block_type(std::string_view name) {
  using enum GgufType;
  for (const GgufType type : {Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, Q3_K, Q4_K, Q5_K, Q6_K}) {
    if (block_type_text(type) == name) return type;
  }
  return std::nullopt;
}

std::string block_type_text(GgufType type) {
  std::string text(gguf_type_info(static_cast<std::uint32_t>(type), "block type").name);
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

std::optional<Dtype> find_dense_type(std::string_view name) {
  for (const Dtype type : {Dtype::Float32, Dtype::Float16, Dtype::BFloat16}) {
    if (name_of(type) == name) return type;
  }
  return std::nullopt;
}

}  // namespace hone
