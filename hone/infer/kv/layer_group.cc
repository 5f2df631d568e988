// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/layer_group.h"

#include <algorithm>

#include "hone/core/check.h"

namespace hone::infer {
namespace {

Index scale_bytes(Dtype dtype) { return dtype == Dtype::Int8 ? 2 * bytes_of(Dtype::Float16) : 0; }

Index positive(Index value, std::string_view name) {
  HONE_CHECK(value > 0 && value <= (Index{1} << 31), "layer group", concat("1 to 2^31 for ", name),
             value);
  return value;
}

}  // namespace

Index first_read(const LayerGroup& group, Index position) {
  return group.window == 0 ? 0 : std::max<Index>(0, position - group.window + 1);
}

Index first_block(const LayerGroup& group, Index length) {
  return first_read(group, length) / kBlockTokens;
}

Index kv_block_bytes(const LayerGroup& group) {
  HONE_CHECK(kernels::is_kv_dtype(group.dtype), "layer group", "f16, f32 or i8",
             name_of(group.dtype));
  HONE_CHECK(group.window >= 0, "layer group", "a window of at least 0 tokens", group.window);
  const Index dims = positive(group.key_dim, "key_dim") + positive(group.value_dim, "value_dim");
  const Index head = dims * bytes_of(group.dtype) + scale_bytes(group.dtype);
  const Index heads =
      checked_mul(positive(group.layers, "layers"), positive(group.kv_heads, "kv_heads"), "block");
  return checked_mul(checked_mul(heads, head, "block"), kBlockTokens, "block");
}

Index kv_bytes(std::span<const LayerGroup> groups, Index length) {
  return kv_bytes(groups, length, length);
}

Index kv_bytes(std::span<const LayerGroup> groups, Index length, Index reader) {
  Index bytes = 0;
  for (const LayerGroup& group : groups) {
    const Index blocks = ceil_div(length, kBlockTokens) - first_block(group, reader);
    bytes = checked_add(bytes, checked_mul(blocks, kv_block_bytes(group), "kv cache"), "kv cache");
  }
  return bytes;
}

Index kv_token_bytes(std::span<const LayerGroup> groups) {
  Index bytes = 0;
  for (const LayerGroup& group : groups) bytes += kv_block_bytes(group) / kBlockTokens;
  return bytes;
}

Index kv_peak_bytes(std::span<const LayerGroup> groups, Index length, Index step) {
  Index bytes = 0;
  for (const LayerGroup& group : groups) {
    Index blocks = ceil_div(length, kBlockTokens);
    if (group.window > 0) {
      // Window and step together span that many positions, whatever their offset in a block.
      const Index span = group.window - 1 + step;
      blocks = std::min(blocks, ceil_div(span, kBlockTokens) + 1);
    }
    constexpr Index kCopies = 1;  // a shared last block is held until it has been copied
    const Index most = checked_mul(blocks + kCopies, kv_block_bytes(group), "kv cache");
    bytes = checked_add(bytes, most, "kv cache");
  }
  return bytes;
}

std::vector<Index> kv_block_sizes(std::span<const LayerGroup> groups) {
  std::vector<Index> bytes;
  for (const LayerGroup& group : groups) bytes.push_back(kv_block_bytes(group));
  return bytes;
}

Index fitting_kv_bytes(std::span<const LayerGroup> groups, Index context, Index step,
                       Index sequences, Index room) {
  constexpr Index kLeastBlocks = 8;
  const Index least = kLeastBlocks * kBlockTokens * kv_token_bytes(groups);
  const Index text = kv_peak_bytes(groups, context, step), most = std::max(room, least);
  return text < most / sequences ? sequences * text : most;
}

}  // namespace hone::infer
