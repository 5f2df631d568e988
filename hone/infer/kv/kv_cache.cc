// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/kv_cache.h"

#include "hone/core/check.h"

namespace hone::infer {

using kernels::kKvBlockTokens;

KvCache::KvCache(const kernels::KvLayout& layout, Index max_tokens)
    : layout_(layout), max_tokens_(max_tokens) {
  HONE_CHECK(max_tokens > 0, "kv cache", "a capacity of at least one token", max_tokens);
  memory_ =
      Buffer(checked_mul(ceil_div(max_tokens, kKvBlockTokens), layout.block_bytes(), "kv cache"));
}

void KvCache::reserve(Index tokens) {
  HONE_CHECK(tokens >= 0 && length_ + tokens <= max_tokens_, "kv cache",
             concat("at most ", max_tokens_, " tokens"), length_ + tokens);
  append_blocks(ceil_div(length_ + tokens, kKvBlockTokens) - blocks());
}

void KvCache::commit(Index tokens) {
  HONE_CHECK(tokens >= 0 && length_ + tokens <= blocks() * kKvBlockTokens, "kv cache",
             concat("at most ", blocks() * kKvBlockTokens, " reserved positions"),
             length_ + tokens);
  length_ += tokens;
}

void KvCache::truncate(Index length) {
  HONE_CHECK(length >= 0 && length <= length_, "kv cache", concat("a length up to ", length_),
             length);
  length_ = length;
  blocks_.resize(static_cast<std::size_t>(ceil_div(length, kKvBlockTokens)));
}

void KvCache::append_blocks(Index count) {
  for (Index i = 0; i < count; ++i) {
    blocks_.push_back(memory_.data() + blocks() * layout_.block_bytes());
  }
}

}  // namespace hone::infer
