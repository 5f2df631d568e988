// SPDX-License-Identifier: Apache-2.0
#include "hone/text/unicode/nfc.h"

#include <gtest/gtest.h>

#include "hone/text/unicode/utf8.h"
#include "tests/text/toy_vocabulary.h"

namespace hone::text {
namespace {

std::string utf8(std::initializer_list<char32_t> code_points) {
  std::string text;
  for (const char32_t c : code_points) append_utf8(text, c);
  return text;
}

// Cases of UAX #15 and of the Unicode core specification, section 3.12.
TEST(Nfc, matches_cases_of_the_standard) {
  EXPECT_EQ(to_nfc("plain"), "plain");
  EXPECT_EQ(to_nfc(utf8({'e', 0x301})), utf8({0xE9}));
  EXPECT_EQ(to_nfc(utf8({0x212B})), utf8({0xC5}));            // singleton
  EXPECT_EQ(to_nfc(utf8({0x0958})), utf8({0x0915, 0x093C}));  // excluded from composition
  EXPECT_EQ(to_nfc(utf8({'q', 0x307, 0x323})), utf8({'q', 0x323, 0x307}));  // reordered
  EXPECT_EQ(to_nfc(utf8({'s', 0x307, 0x323})), utf8({0x1E69}));       // reordered and composed
  EXPECT_EQ(to_nfc(utf8({0x1100, 0x1161, 0x11A8})), utf8({0xAC01}));  // Hangul
  EXPECT_EQ(to_nfc(utf8({0xAC00, 0x11A8})), utf8({0xAC01}));
  EXPECT_EQ(to_nfc(utf8({0xAC00, 0x11A7})), utf8({0xAC00, 0x11A7}));  // no trailing consonant
  EXPECT_EQ(to_nfc(utf8({'a', 0x315, 0x300})), utf8({0xE0, 0x315}));
  EXPECT_EQ(to_nfc(utf8({'a', 0x0334, 'b', 0x300})), utf8({'a', 0x0334, 'b', 0x300}));
  EXPECT_EQ(to_nfc(utf8({0x0344})), utf8({0x308, 0x301}));  // starts with a mark
}

TEST(Nfc, leaves_bytes_that_are_no_utf8_in_place) {
  EXPECT_EQ(to_nfc("e\xFF\xCC\x81"), "e\xFF\xCC\x81");
  EXPECT_EQ(to_nfc("\xE1\x84"), "\xE1\x84");
}

TEST(Nfc, is_idempotent) {
  PhiloxStream random(5);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (int i = 0; i < 8; ++i) {
      append_utf8(text, random.below(2) == 0 ? 0x300 + random.below(0x70) : random.below(0xD800));
    }
    const std::string once = to_nfc(text);
    ASSERT_EQ(to_nfc(once), once);
  }
}

}  // namespace
}  // namespace hone::text
