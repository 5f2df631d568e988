// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/roof/roof.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/philox.h"

namespace hone::kernels {
namespace {

constexpr Index kCounts[] = {0, 1, 7, 8, 31, 64, 127, 1009, 4096};

std::vector<std::uint64_t> random_words(Index count) {
  PhiloxStream random(11);
  std::vector<std::uint64_t> words(static_cast<std::size_t>(count));
  for (auto& word : words) word = (std::uint64_t{random()} << 32) | random();
  return words;
}

TEST(XorWords, matches_reference_at_every_alignment) {
  for (const Index count : kCounts) {
    const auto words = random_words(count + 3);
    for (Index offset = 0; offset < 3; ++offset) {
      EXPECT_EQ(xor_words(words.data() + offset, count),
                xor_words_ref(words.data() + offset, count))
          << count << " words at " << offset;
    }
  }
}

TEST(StreamCopy, copies_everything_and_nothing_more) {
  for (const Index count : kCounts) {
    const auto words = random_words(count);
    Buffer from(8 * count + 64), to(8 * count + 64);
    std::ranges::copy(words, from.as<std::uint64_t>());
    stream_copy(from.as<std::uint64_t>(), to.as<std::uint64_t>(), count);
    EXPECT_TRUE(std::equal(words.begin(), words.end(), to.as<std::uint64_t>())) << count;
    EXPECT_EQ(to.as<std::uint64_t>()[count], 0u);
  }
}

TEST(IncrementWords, matches_reference) {
  for (const Index count : kCounts) {
    auto ours = random_words(count), theirs = ours;
    if (count > 0) ours[0] = theirs[0] = ~std::uint64_t{0};  // wraps
    increment_words(ours.data(), count);
    increment_words_ref(theirs.data(), count);
    EXPECT_EQ(ours, theirs) << count;
  }
}

TEST(FmaChains, follow_the_closed_form) {
  for (const Index rounds : {0, 1, 2, 5, 1000}) {
    const FmaWork work = run_fma_chains(rounds);
    const FmaWork expected = run_fma_chains_ref(rounds, work.lanes);
    EXPECT_EQ(work.flops, expected.flops);
    EXPECT_GE(work.lanes, 1);
    // At most `lanes * 12` values near 1, each within a few roundings, summed in f32.
    EXPECT_NEAR(work.sum, expected.sum, expected.sum * 1e-6 + 1e-7) << rounds << " rounds";
  }
}

TEST(FmaChains, count_two_operations_per_lane_and_step) {
  const FmaWork work = run_fma_chains(10);
  EXPECT_EQ(work.flops, 2.0 * 12 * 10 * static_cast<double>(work.lanes));
}

}  // namespace
}  // namespace hone::kernels
