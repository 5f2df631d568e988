// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/select.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "hone/core/check.h"

namespace hone::compress {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000;

// The bits of |x|, so that -0 equals 0.
std::uint32_t bits_of(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  HONE_REQUIRE(x >= 0 || bits == 0x80000000u, "select", "A value is negative or not a number.");
  return bits & 0x7fffffffu;
}

// The bin that has value number `rank`, which becomes its place within the bin.
std::uint32_t bin_of(const std::vector<Index>& counts, Index& rank) {
  std::uint32_t bin = 0;
  for (; rank >= counts[bin]; ++bin) rank -= counts[bin];
  return bin;
}

}  // namespace

Threshold find_threshold(Index count, FunctionRef<void(ValueSink)> visit) {
  if (count == 0) return {};
  std::vector<Index> upper(kInfinity / 65536 + 1), lower(65536);
  Index all = 0;
  visit([&](std::span<const float> values) {
    for (const float value : values) ++upper[bits_of(value) >> 16];
    all += std::ssize(values);
  });
  HONE_CHECK(count > 0 && count <= all, "select", concat("a count of at most ", all), count);
  Index rank = count - 1;
  const std::uint32_t bin = bin_of(upper, rank);
  visit([&](std::span<const float> values) {
    for (const float value : values)
      if (const std::uint32_t bits = bits_of(value); bits >> 16 == bin) ++lower[bits & 0xffff];
  });
  const std::uint32_t rest = bin_of(lower, rank);
  return {std::bit_cast<float>(bin << 16 | rest), rank + 1};
}

void mark_largest(std::span<const float> values, Index count, std::span<std::uint8_t> mask) {
  HONE_CHECK(count >= 0 && count <= std::ssize(values), "select",
             concat("a count of at most ", values.size()), count);
  Threshold threshold;
  if (count > 0) {
    std::vector<float> ordered(values.begin(), values.end());
    std::ranges::nth_element(ordered, ordered.begin() + count - 1);
    threshold.value = ordered[static_cast<std::size_t>(count - 1)];
    threshold.ties =
        count - std::ranges::count_if(values, [&](float value) { return value < threshold.value; });
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool ties = values[i] == threshold.value && threshold.ties > 0;
    if (ties) --threshold.ties;
    mask[i] = values[i] < threshold.value || ties ? 0 : 1;
  }
}

}  // namespace hone::compress
