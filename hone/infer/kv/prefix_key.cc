// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/prefix_key.h"

#include <bit>

#include "hone/infer/kv/layer_group.h"

namespace hone::infer {
namespace {

struct SipState {
  std::uint64_t v0, v1, v2, v3;

  void round(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  }
  void absorb(std::uint64_t word) {
    v3 ^= word;
    round(2);
    v0 ^= word;
  }
  std::uint64_t sum() const { return v0 ^ v1 ^ v2 ^ v3; }
};

}  // namespace

PrefixKey siphash128(const PrefixSecret& secret, std::span<const std::uint64_t> words) {
  SipState state{.v0 = secret[0] ^ 0x736f6d6570736575u,
                 .v1 = secret[1] ^ 0x646f72616e646f6du ^ 0xee,
                 .v2 = secret[0] ^ 0x6c7967656e657261u,
                 .v3 = secret[1] ^ 0x7465646279746573u};
  for (const std::uint64_t word : words) state.absorb(word);
  state.absorb(static_cast<std::uint64_t>(words.size() * 8) << 56);  // the length modulo 256
  state.v2 ^= 0xee;
  state.round(4);
  const std::uint64_t low = state.sum();
  state.v1 ^= 0xdd;
  state.round(4);
  return {low, state.sum()};
}

PrefixKey root_key(const PrefixSecret& secret, std::uint64_t salt) {
  const std::uint64_t words[] = {salt};
  return siphash128(secret, words);
}

PrefixKey extend_key(const PrefixSecret& secret, const PrefixKey& parent,
                     std::span<const TokenId> ids) {
  std::array<std::uint64_t, 2 + kBlockTokens / 2> words{parent[0], parent[1]};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    words[2 + i / 2] |= std::uint64_t{static_cast<std::uint32_t>(ids[i])} << (i % 2 * 32);
  }
  return siphash128(secret, words);
}

}  // namespace hone::infer
