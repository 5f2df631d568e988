// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/core/philox.h"
#include "tests/compress/normals.h"
#include "tests/support/error_of.h"

namespace hone::compress {
namespace {

Threshold threshold_of(std::span<const float> values, Index count) {
  return find_threshold(count, [&](ValueSink sink) {
    const auto half = values.size() / 2;
    sink(values.first(half));
    sink(values.subspan(half));
  });
}

std::vector<float> sizes(Index count, std::uint64_t seed) {
  std::vector<float> values = normals(count, seed);
  for (float& value : values) value = std::abs(value);
  return values;
}

TEST(Select, finds_the_value_that_sorting_finds) {
  const std::vector<float> values = sizes(5001, 1);
  std::vector<float> sorted = values;
  std::ranges::sort(sorted);
  for (const Index count : {1, 2, 17, 2500, 5000, 5001}) {
    const Threshold found = threshold_of(values, count);
    EXPECT_EQ(found.value, sorted[static_cast<std::size_t>(count - 1)]);
    const Index below = std::ranges::lower_bound(sorted, found.value) - sorted.begin();
    EXPECT_EQ(below + found.ties, count);
  }
  EXPECT_EQ(threshold_of(values, 0).ties, 0);
}

TEST(Select, takes_exactly_the_count_among_equal_values_the_first_ones) {
  std::vector<float> values(100, 2.0f);
  for (std::size_t i = 0; i < 100; i += 10) values[i] = i % 20 == 0 ? -0.0f : 0.0f;
  std::vector<std::uint8_t> kept(100);
  mark_largest(values, 13, kept);
  EXPECT_EQ(std::ranges::count(kept, 0), 13);
  for (const std::size_t i : {0, 10, 90, 1, 2, 3}) EXPECT_EQ(kept[i], 0) << i;
  EXPECT_EQ(kept[4], 1);
  const Threshold found = threshold_of(values, 13);
  EXPECT_EQ(found.value, 2);
  EXPECT_EQ(found.ties, 3);
  EXPECT_EQ(threshold_of(values, 10).value, 0);
  EXPECT_EQ(threshold_of(values, 10).ties, 10);
}

TEST(Select, orders_values_of_every_size) {
  const float tiny = std::numeric_limits<float>::denorm_min(),
              huge = std::numeric_limits<float>::max();
  const std::vector<float> values{
      huge, 1, tiny, 0, std::nextafter(1.0f, 2.0f), std::numeric_limits<float>::infinity()};
  const std::vector<float> wanted{0, tiny, 1, std::nextafter(1.0f, 2.0f), huge};
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_EQ(threshold_of(values, static_cast<Index>(i) + 1).value, wanted[i]);
}

// torch.quantile, which the reference suite calls, takes at most 2^24 values.
TEST(ReferenceFaults, magnitudes_of_more_than_16_million_weights_are_selected_exactly) {
  PhiloxStream random(3);
  std::vector<float> values((std::size_t{1} << 24) + 7);
  for (float& value : values) value = static_cast<float>(random.below(1000));
  const auto count = static_cast<Index>(values.size() / 2);
  const Threshold found = threshold_of(values, count);
  const Index below =
      std::ranges::count_if(values, [&](float value) { return value < found.value; });
  EXPECT_EQ(below + found.ties, count);
  EXPECT_LE(found.ties, std::ranges::count(values, found.value));
  EXPECT_GT(found.ties, 0);
}

TEST(Select, refuses_what_has_no_order) {
  const std::vector<float> bad{1, std::nanf("")}, negative{1, -1};
  EXPECT_THAT(hone::test::refusal([&] { threshold_of(bad, 1); }), testing::HasSubstr("number"));
  EXPECT_THROW(threshold_of(negative, 1), Error);
  EXPECT_THROW(threshold_of(sizes(4, 1), 5), Error);
  std::vector<std::uint8_t> kept(4);
  EXPECT_THROW(mark_largest(sizes(4, 1), 5, kept), Error);
}

}  // namespace
}  // namespace hone::compress
