// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "hone/kernels/roof/roof.h"

namespace hone::kernels {

std::uint64_t xor_words_ref(const std::uint64_t* words, Index count) {
  std::uint64_t result = 0;
  for (Index i = 0; i < count; ++i) result ^= words[i];
  return result;
}

void increment_words_ref(std::uint64_t* words, Index count) {
  for (Index i = 0; i < count; ++i) ++words[i];
}

// Closed form: x_n = 1 + (x_0 - 1) * 0.75^n.
FmaWork run_fma_chains_ref(Index rounds, Index lanes) {
  FmaWork work{.flops = 2.0 * static_cast<double>(kFmaChains * lanes * rounds), .lanes = lanes};
  const double shrink = std::pow(0.75, static_cast<double>(rounds));
  for (Index lane = 0; lane < lanes; ++lane) {
    for (Index chain = 0; chain < kFmaChains; ++chain) {
      const double start =
          static_cast<double>(lane) / static_cast<double>(lanes) + static_cast<double>(chain);
      work.sum += 1 + (start - 1) * shrink;
    }
  }
  return work;
}

}  // namespace hone::kernels
