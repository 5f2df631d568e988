// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/philox.h"
#include "hone/kernels/sampling/gumbel.h"

namespace hone::kernels {

// 16 Philox blocks serve 64 tokens. Word k of the blocks belongs to tokens 16 k to 16 k + 15, so
// that words and logits are in the same order in vectors of up to 16 lanes.
inline constexpr Index kNoiseLanes = 16, kNoiseTokens = 64;

constexpr Index noise_block(Index token) {
  return token / kNoiseTokens * kNoiseLanes + token % kNoiseLanes;
}
constexpr PhiloxBlock noise_counter(const GumbelKey& key, Index block) {
  return {static_cast<std::uint32_t>(block), key.position, 1, key.choice};
}
constexpr PhiloxBlock refining_counter(const GumbelKey& key, Index token) {
  return {static_cast<std::uint32_t>(token), key.position, 2, key.choice};
}

constexpr double scaled_logit(const GumbelArgmaxArgs& args, float logit) {
  return (static_cast<double>(logit) - args.highest) / args.temperature;
}

}  // namespace hone::kernels
