// SPDX-License-Identifier: Apache-2.0
#include "hone/text/bpe/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hone::text {
namespace {

using testing::ElementsAre;

// Plain stretches as text, tokens as "#id".
std::vector<std::string> split(const AddedTokenMatcher& matcher, std::string_view text) {
  std::vector<std::string> parts;
  matcher.split(
      text, [&](std::string_view plain) { parts.emplace_back(plain); },
      [&](TokenId id) { parts.push_back("#" + std::to_string(id)); });
  return parts;
}

TEST(AddedTokens, match_leftmost_and_longest) {
  AddedTokenMatcher m;
  m.add("<a>", {.id = 1});
  m.add("<a><b>", {.id = 2});
  m.add("a><", {.id = 3});
  EXPECT_THAT(split(m, "x<a><b>y<a>a><"), ElementsAre("x", "#2", "y", "#1", "#3"));
  EXPECT_THAT(split(m, ""), ElementsAre());
  EXPECT_THAT(split(m, "<a"), ElementsAre("<a"));
}

TEST(AddedTokens, take_white_space_along_where_they_say_so) {
  AddedTokenMatcher m;
  m.add("<l>", {.id = 1, .lstrip = true});
  m.add("<r>", {.id = 2, .rstrip = true});
  EXPECT_THAT(split(m, "a \xC2\xA0<l> b <r>\xE3\x80\x80\n c"),
              ElementsAre("a", "#1", " b ", "#2", "c"));
  EXPECT_THAT(split(m, "<r>  <l>"), ElementsAre("#2", "#1"));
}

TEST(AddedTokens, stand_alone_where_they_say_so) {
  AddedTokenMatcher m;
  m.add("ing", {.id = 1, .single_word = true});
  EXPECT_THAT(split(m, "king ing, ing9 -ing"), ElementsAre("king ", "#1", ", ing9 -", "#1"));
  EXPECT_THAT(split(m, "éing"), ElementsAre("éing"));
  EXPECT_THAT(split(m, "\xFFing\xFF"), ElementsAre("\xFF", "#1", "\xFF"));
}

}  // namespace
}  // namespace hone::text
