// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/buffer.h"
#include "hone/kernels/attention/kv_layout.h"

namespace hone::infer {

// Keys and values of one sequence: length() committed tokens in blocks of 32, all layers of a block
// adjacent. Address space for `max_tokens` is taken at once; memory is used at first touch only.
//
// Today one sequence owns one contiguous run of blocks. Readers go through a block table already,
// so a shared pool replaces append_blocks() without touching the model or the kernels.
class KvCache {
 public:
  // Error{Resource} when the address space is refused.
  KvCache(const kernels::KvLayout& layout, Index max_tokens);

  const kernels::KvLayout& layout() const { return layout_; }
  Index length() const { return length_; }
  Index capacity() const { return max_tokens_; }

  // Makes room for positions length() … length() + tokens - 1. Error{InvalidArgument} beyond
  // capacity().
  void reserve(Index tokens);
  // The reserved positions up to length() + tokens now hold a token each.
  void commit(Index tokens);
  // Forgets positions from `length` on.
  void truncate(Index length);

  kernels::KvView view(Index layer) const { return {layout_, layer, blocks_}; }
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
