// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/buffer.h"
#include "hone/kernels/attention/kv_layout.h"

namespace hone::infer {

// The keys and values of one sequence: length() committed tokens in blocks of 32, with all layers
// of a block adjacent. Address space for `max_tokens` is reserved at once; memory is used on first
// touch.
//
// One sequence owns one contiguous run of blocks. Readers use a block table, so a shared pool could
// replace append_blocks() without changes to the model or the kernels.
class KvCache {
 public:
  // Throws Error{Resource} if the address space cannot be reserved.
  KvCache(const kernels::KvLayout& layout, Index max_tokens);

  const kernels::KvLayout& layout() const { return layout_; }
  Index length() const { return length_; }
  Index capacity() const { return max_tokens_; }

  // Reserves positions length() … length() + tokens - 1. Throws Error{InvalidArgument} beyond
  // capacity().
  void reserve(Index tokens);
  // Declares the reserved positions up to length() + tokens filled.
  void commit(Index tokens);
  // Discards the positions from `length` on.
  void truncate(Index length);

  kernels::BlockTable table() const { return blocks_; }
  Index blocks() const { return static_cast<Index>(blocks_.size()); }
  Index bytes() const { return blocks() * layout_.block_bytes(); }

 private:
  void append_blocks(Index count);

  kernels::KvLayout layout_;
  Index max_tokens_ = 0, length_ = 0;
  Buffer memory_;
  std::vector<std::byte*> blocks_;
};

}  // namespace hone::infer
