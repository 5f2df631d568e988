// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sample/stop_matcher.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hone/core/philox.h"

namespace hone::infer {
namespace {

std::string feed(StopMatcher& matcher, const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += matcher.push(piece);
  return text + matcher.finish();
}

TEST(StopMatcher, without_stops_passes_everything_at_once) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, a_stop_across_pieces_never_comes_out) {
  StopMatcher matcher({"STOP"});
  EXPECT_EQ(feed(matcher, {"go S", "T", "OP on"}), "go ");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopMatcher, a_beginning_that_fails_is_given_back) {
  StopMatcher matcher({"STOP"});
  EXPECT_EQ(matcher.push("ST"), "");
  EXPECT_EQ(matcher.push("AR"), "STAR");
  EXPECT_EQ(matcher.push("S"), "");
  EXPECT_EQ(matcher.finish(), "S");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, the_earliest_of_several_wins) {
  StopMatcher matcher({"bc", "abcd"});
  EXPECT_EQ(feed(matcher, {"xabcd"}), "x");
}

TEST(StopMatcher, equals_a_search_in_the_whole_text_for_every_split) {
  PhiloxStream random(3);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string text;
    for (int i = 0; i < 24; ++i) text += static_cast<char>('a' + random.below(2));
    const std::vector<std::string> stops = {"aabab", "bbb"};
    const std::size_t at = std::min(text.find(stops[0]), text.find(stops[1]));
    std::vector<std::string> pieces;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t length = 1 + random.below(4);
      pieces.push_back(text.substr(i, length));
      i += length;
    }
    StopMatcher matcher(stops);
    // Fed piece by piece, the match that completes first wins; both strings end a text anyway.
    const std::string got = feed(matcher, pieces);
    ASSERT_EQ(matcher.matched(), at != std::string::npos) << text;
    if (!matcher.matched()) {
      ASSERT_EQ(got, text);
    } else {
      ASSERT_EQ(text.compare(0, got.size(), got), 0);
      ASSERT_EQ(got.find("bbb"), std::string::npos);
      ASSERT_EQ(got.find("aabab"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace hone::infer
