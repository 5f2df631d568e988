// SPDX-License-Identifier: Apache-2.0
#include "hone/text/unicode/utf8.h"

#include <gtest/gtest.h>

#include "hone/core/philox.h"
#include "hone/text/tokenizer.h"

namespace hone::text {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

TEST(Utf8, accepts_every_code_point_and_nothing_else) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const CodePoint back = decode_utf8(text);
    ASSERT_EQ(back.value, c);
    ASSERT_EQ(back.bytes, static_cast<int>(text.size()));
    ASSERT_TRUE(is_valid_utf8(text));
    ASSERT_FALSE(is_valid_utf8(text.substr(0, text.size() - 1)) && text.size() > 1);
  }
  for (const std::string bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80",
                                "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80"}) {
    EXPECT_EQ(decode_utf8(bad).bytes, 0);
  }
}

TEST(Utf8Stream, holds_back_an_incomplete_character_until_it_is_whole) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0"), "a");
  EXPECT_EQ(stream.push("\x9F\x98"), "");
  EXPECT_EQ(stream.push("\x80z"), "😀z");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, replaces_what_can_never_complete) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xFFok"), std::string(kReplacement) + "ok");
  EXPECT_EQ(stream.push("\xE4\xBD"), "");
  EXPECT_EQ(stream.push("x"), std::string(kReplacement) + "x");
  EXPECT_EQ(stream.push("\xE4"), "");
  EXPECT_EQ(stream.finish(), kReplacement);
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, gives_the_same_text_however_bytes_are_cut) {
  PhiloxStream random(11);
  const char alphabet[] = "a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80\xFF";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 12; ++i) bytes += alphabet[random.below(sizeof(alphabet) - 1)];
    Utf8Stream whole, cut;
    const std::string expected_head = whole.push(bytes);
    const std::string expected = expected_head + whole.finish();
    std::string got;
    for (std::size_t i = 0; i < bytes.size();) {
      const std::size_t step = 1 + random.below(4);
      got += cut.push(std::string_view(bytes).substr(i, step));
      i += step;
    }
    got += cut.finish();
    ASSERT_EQ(got, expected);
    ASSERT_TRUE(is_valid_utf8(got));
  }
}

}  // namespace
}  // namespace hone::text
