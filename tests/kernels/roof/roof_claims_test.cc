// SPDX-License-Identifier: Apache-2.0
// The roof kernels are yardsticks: each must do all the work it is credited with.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/philox.h"
#include "hone/kernels/roof/roof.h"

namespace hone::kernels {
namespace {

TEST(XorWords, every_bit_of_every_word_reaches_the_result) {
  for (const Index count : {1, 2, 15, 16, 17, 64, 129}) {
    std::vector<std::uint64_t> words(static_cast<std::size_t>(count), 0);
    for (std::uint64_t& word : words) {
      for (int bit = 0; bit < 64; bit += 7) {
        word = std::uint64_t{1} << bit;
        ASSERT_EQ(xor_words(words.data(), count), word) << count;
      }
      word = 0;
    }
  }
}

TEST(XorWords, a_range_twice_cancels_and_parts_combine) {
  PhiloxStream random(2);
  std::vector<std::uint64_t> words(2 * 777);
  for (std::size_t i = 0; i < 777; ++i) {
    words[i] = (std::uint64_t{random()} << 32) | random();
    words[777 + i] = words[i];
  }
  EXPECT_EQ(xor_words(words.data(), 2 * 777), 0u);
  for (const Index cut : {0, 1, 300, 777})
    EXPECT_EQ(xor_words(words.data(), cut) ^ xor_words(words.data() + cut, 777 - cut),
              xor_words(words.data(), 777));
}

TEST(StreamCopy, leaves_the_source_alone_and_ignores_what_was_there) {
  for (const Index count : {1, 8, 9, 1000}) {
    Buffer from(8 * count), to(8 * count);
    std::iota(from.as<std::uint64_t>(), from.as<std::uint64_t>() + count, std::uint64_t{5});
    std::fill_n(to.as<std::uint64_t>(), count, ~std::uint64_t{0});
    stream_copy(from.as<std::uint64_t>(), to.as<std::uint64_t>(), count);
    for (Index i = 0; i < count; ++i) {
      ASSERT_EQ(to.as<std::uint64_t>()[i], static_cast<std::uint64_t>(5 + i));
      ASSERT_EQ(from.as<std::uint64_t>()[i], static_cast<std::uint64_t>(5 + i));
    }
  }
}

TEST(IncrementWords, counts_each_word_once_a_call_and_touches_no_neighbor) {
  for (const Index count : {1, 7, 8, 100}) {
    std::vector<std::uint64_t> words(static_cast<std::size_t>(count) + 2);
    std::iota(words.begin(), words.end(), ~std::uint64_t{0} - 50);  // wraps on the way
    const auto before = words;
    for (int call = 0; call < 3; ++call) increment_words(words.data() + 1, count);
    EXPECT_EQ(words.front(), before.front());
    EXPECT_EQ(words.back(), before.back());
    for (std::size_t i = 1; i + 1 < words.size(); ++i) ASSERT_EQ(words[i], before[i] + 3) << i;
  }
}

// Every lane follows x <- 0.75 x + 0.25 from its own start, lane / lanes + chain; their sum has a
// closed form that no round may be missing from.
TEST(FmaChains, each_round_moves_the_sum_by_a_quarter_of_what_is_left) {
  const FmaWork start = run_fma_chains(0);
  const double full = 12.0 * static_cast<double>(start.lanes);
  EXPECT_EQ(start.flops, 0);
  const double mean = 5.5 + 0.5 - 0.5 / static_cast<double>(start.lanes);
  EXPECT_NEAR(start.sum, full * mean, full * mean * 1e-6);
  for (Index rounds = 1; rounds <= 30; ++rounds) {
    const FmaWork work = run_fma_chains(rounds);
    EXPECT_EQ(work.lanes, start.lanes);
    EXPECT_EQ(work.flops, 2 * full * static_cast<double>(rounds));
    EXPECT_NEAR(full - work.sum, (full - start.sum) * std::pow(0.75, static_cast<double>(rounds)),
                full * mean * 1e-6)
        << rounds;
  }
}

}  // namespace
}  // namespace hone::kernels
