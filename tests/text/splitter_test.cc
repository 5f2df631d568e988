// SPDX-License-Identifier: Apache-2.0
#include "hone/text/unicode/splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/text/pre_tokenizer.h"
#include "tests/text/toy_vocabulary.h"

namespace hone::text {
namespace {

using testing::ElementsAre;

std::vector<std::string> split(std::string_view pattern, std::string_view text) {
  std::vector<std::string> parts;
  Splitter(pattern, "test").split(text, [&](std::string_view part) { parts.emplace_back(part); });
  return parts;
}

TEST(Splitter, cuts_english_as_gpt2_does) {
  EXPECT_THAT(split(kGpt2Pattern, "I'm here,  it's 42!\n\n ok"),
              ElementsAre("I", "'m", " here", ",", " ", " it", "'s", " 42", "!", "\n\n", " ok"));
}

TEST(Splitter, cuts_digits_and_line_breaks_as_llama3_and_qwen2_do) {
  EXPECT_THAT(split(kLlama3Pattern, "I'M 12345!\n\nx"),
              ElementsAre("I", "'M", " ", "123", "45", "!\n\n", "x"));
  EXPECT_THAT(split(kQwen2Pattern, "a 123"), ElementsAre("a", " ", "1", "2", "3"));
}

// PCRE2's own \s holds U+180E, which Unicode does not call white space.
TEST(Splitter, takes_white_space_from_unicode) {
  EXPECT_THAT(split(R"(\s+)", "a\xE1\xA0\x8E\xC2\x85z"),
              ElementsAre("a\xE1\xA0\x8E", "\xC2\x85", "z"));
  EXPECT_THAT(split(R"([^\s]+)", "a\xE1\xA0\x8E b"), ElementsAre("a\xE1\xA0\x8E", " ", "b"));
  EXPECT_THAT(split(R"(\w+)", "a_\xCC\x81-b"), ElementsAre("a_\xCC\x81", "-", "b"));
}

TEST(Splitter, keeps_invalid_bytes_as_parts_of_their_own) {
  EXPECT_THAT(split(kGpt2Pattern, "ab\xFF\xFEz"), ElementsAre("ab", "\xFF\xFE", "z"));
}

TEST(Splitter, loses_nothing) {
  PhiloxStream random(3);
  const Splitter splitter(kLlama3Pattern, "test");
  for (int round = 0; round < 3000; ++round) {
    const std::string text = test::random_text(random, 30);
    std::string joined;
    splitter.split(text, [&](std::string_view part) {
      ASSERT_FALSE(part.empty());
      joined += part;
    });
    ASSERT_EQ(joined, text);
  }
}

TEST(Splitter, names_what_it_does_not_compile) {
  for (const char* pattern : {"(", R"([\W])", "[a[bc]]", "[a&&b]", R"(\C)"}) {
    const auto failure = test::failure_of([&] { Splitter(pattern, "file.json"); });
    EXPECT_EQ(failure.category, ErrorCategory::Unsupported) << pattern;
    EXPECT_THAT(failure.message, testing::HasSubstr("file.json")) << pattern;
  }
}

TEST(Splitter, gives_up_on_a_pattern_that_backtracks_without_end) {
  std::string assertions;  // which compiled code does not count
  for (int i = 0; i < 40; ++i) assertions += i % 2 == 0 ? "(?=a)*" : "((?=a)|)";
  for (const std::string& pattern : {std::string("(a+)+$"), assertions + "[bc]"}) {
    const auto failure = test::failure_of([&] { split(pattern, std::string(64, 'a') + "d"); });
    EXPECT_EQ(failure.category, ErrorCategory::Resource) << pattern;
  }
}

// Each character takes milliseconds, and stays below the limit on backtracking.
TEST(Splitter, gives_up_on_a_pattern_that_is_slow_everywhere) {
  for (const char* pattern :
       {R"((?:.|..){1,18}\x{10FFFF}|.)", R"((?:.|..){1,18}[\x{10FFFE}\x{10FFFF}])"}) {
    const auto failure = test::failure_of([&] { split(pattern, std::string(100'000, 'a')); });
    EXPECT_EQ(failure.category, ErrorCategory::Resource) << pattern;
    EXPECT_THAT(failure.message, testing::HasSubstr("for each byte")) << pattern;
  }
}

TEST(Splitter, finds_matches_that_are_far_apart) {
  std::string text;
  std::vector<std::string> wanted;
  for (const std::size_t gap : {1, 63, 64, 65, 66, 127, 128, 129, 500}) {
    for (const char* letter : {"a", "\u00e9", "\u20ac", "\U0001f600"}) {  // 1 to 4 bytes
      std::string filling;
      for (std::size_t i = 0; i < gap; ++i) filling += letter;
      wanted.push_back(filling);
      wanted.emplace_back("12");
      text += filling + "12";
    }
  }
  EXPECT_EQ(split(R"(\p{N}+)", text), wanted);
  text += std::string(1000, 'x');
  wanted.emplace_back(1000, 'x');
  EXPECT_EQ(split(R"(\p{N}+)", text), wanted);
}

}  // namespace
}  // namespace hone::text
