// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/index.h"

namespace hone::kernels {

// Scans over the logits of one position. The results are the same on every instruction set.

struct LogitRange {
  float highest = 0;       // -infinity for an empty row, unspecified with NaN
  bool is_finite = false;  // no NaN and no infinity
};
LogitRange logit_range(const float* logits, Index count);

// Writes the largest logit of each group of kLogitGroup logits; the last group may be shorter.
inline constexpr Index kLogitGroup = 64;
void group_maxima(const float* logits, Index count, float* maxima);

// Returns the index of the first logit >= bound; count if there is none.
Index first_at_least(const float* logits, Index count, float bound);

// Writes the ascending indices of the logits >= bound to ids [count]. Returns how many there are.
Index collect_at_least(const float* logits, Index count, float bound, std::int32_t* ids);

// masses[i] = exp((logits[i] - highest) / temperature) in units of 2^-43, to the nearest: within a
// relative error of 2^-21 (1 + |log mass|) and half a unit. Integers make sums independent of their
// order. Logits may be -infinity (mass 0); none may exceed `highest`. Returns the sum, which stays
// below 2^64. Throws Error{InvalidArgument} if count is not in 0…2^20, or temperature is not
// positive.
std::uint64_t softmax_masses(const float* logits, Index count, float highest, float temperature,
                             std::uint64_t* masses);

}  // namespace hone::kernels
