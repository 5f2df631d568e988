// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/kernels/attention/kv_layout.h"

namespace hone::test {

// The keys and values of one text in blocks of its own, for tests that run the model without an
// engine.
class TextCache {
 public:
  TextCache(const kernels::KvLayout& layout, Index max_tokens)
      : layout_(layout),
        memory_(static_cast<std::size_t>(ceil_div(max_tokens, kernels::kKvBlockTokens) *
                                         layout.block_bytes())) {
    for (Index at = 0; at < std::ssize(memory_); at += layout.block_bytes()) {
      blocks_.push_back(memory_.data() + at);
    }
  }

  const kernels::KvLayout& layout() const { return layout_; }
  Index length() const { return length_; }
  void commit(Index tokens) { length_ += tokens; }
  kernels::BlockPointers table() const { return blocks_; }

 private:
  kernels::KvLayout layout_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> blocks_;
  Index length_ = 0;
};

}  // namespace hone::test
