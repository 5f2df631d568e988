// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "hone/core/index.h"

namespace hone::kernels {

// Determines the noise of one position, together with the token.
struct GumbelKey {
  std::uint64_t seed = 0;
  std::uint32_t position = 0, choice = 0;
};

// Returns the standard Gumbel noise of a token, G = -log(-log(1 - x)), with the same bits on every
// machine. x = (n + 1/2) / 2^52. The high 32 bits of n are word (token / 16) % 4 of the Philox
// block with key `seed` and counter {16 (token / 64) + token % 16, position, 1, choice}. The low 20
// bits are the high bits of word 0 of the block {token, position, 2, choice}.
double gumbel_noise(const GumbelKey& key, Index token);

// The tokens of a row that may be drawn: tokens whose logit is above `least`, and tokens with ids
// up to `last` whose logit equals it.
struct TokenCut {
  float least = -std::numeric_limits<float>::infinity();
  Index last = std::numeric_limits<Index>::max();

  bool keeps(float logit, Index token) const {
    return logit > least || (logit == least && token <= last);
  }
};

struct GumbelArgmaxArgs {
  const float* logits = nullptr;  // [count], finite or -infinity
  Index count = 0;
  float highest = 0;      // the largest logit; finite
  float temperature = 1;  // positive, may be subnormal
  TokenCut cut{};
  GumbelKey key{};
};

// Returns the token, among those that the cut keeps, with the largest (logit - highest) /
// temperature + G in double; the lowest id on ties. This draws from softmax(logits / temperature)
// over these tokens (Gumbel, 1954; Maddison et al., "A* Sampling", 2014). The result is the same on
// every instruction set: vectors only discard tokens whose bound in f32 is too low. Returns -1 if
// every logit is -infinity or cut. Throws Error{InvalidArgument} if count is not in 0…2^31, highest
// is not finite, or temperature is not positive and finite.
Index gumbel_argmax(const GumbelArgmaxArgs& args);

// Reference: plain loop over gumbel_noise().
Index gumbel_argmax_ref(const GumbelArgmaxArgs& args);

}  // namespace hone::kernels
