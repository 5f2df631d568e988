// SPDX-License-Identifier: Apache-2.0
#include "hone/data/permute.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "hone/core/philox.h"

namespace hone::data {
namespace {

constexpr int kFeistelRounds = 4;
// The first of Philox's streams used here, one for each round. Callers draw their keys from lower
// streams.
constexpr std::uint32_t kRoundStream = 16;

std::uint64_t draw(std::uint64_t seed, std::uint64_t number, std::uint32_t stream) {
  const PhiloxBlock block = philox(seed, {static_cast<std::uint32_t>(number),
                                          static_cast<std::uint32_t>(number >> 32), stream, 0});
  return std::uint64_t{block[0]} << 32 | block[1];
}

std::uint64_t feistel(std::uint64_t value, int half_bits, std::uint64_t key) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits, right = value & mask;
  for (int round = 0; round < kFeistelRounds; ++round) {
    const std::uint64_t mixed = draw(key, right, kRoundStream + static_cast<std::uint32_t>(round));
    left = std::exchange(right, (left ^ mixed) & mask);
  }
  return left << half_bits | right;
}

}  // namespace

Index permute(Index index, Index size, std::uint64_t key) {
  const int bits =
      std::max(2, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size - 1))));
  const int half_bits = (bits + 1) / 2;
  auto value = static_cast<std::uint64_t>(index);
  do {
    value = feistel(value, half_bits, key);
  } while (value >= static_cast<std::uint64_t>(size));
  return static_cast<Index>(value);
}

}  // namespace hone::data
