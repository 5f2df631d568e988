// SPDX-License-Identifier: Apache-2.0
// Characters of strings, by the definitions of UTF-8 (RFC 3629) and JSON (RFC 8259).
#include "hone/infer/grammar/character.h"

#include <gtest/gtest.h>

#include <string>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "hone/core/philox.h"

namespace hone::infer::grammar {
namespace {

using Step = std::uint8_t (*)(std::uint8_t, std::uint8_t);

// Whether the bytes are one whole character, and no proper prefix of them is.
bool is_one(Step step, const std::string& bytes) {
  std::uint8_t state = kCharacterStart;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0 && state == kCharacterStart) return false;
    state = step(state, static_cast<std::uint8_t>(bytes[i]));
    if (state == kNoCharacter) return false;
  }
  return state == kCharacterStart && !bytes.empty();
}

// The bytes of a number of up to 21 bits by the table of RFC 3629, also where it is no character.
std::string utf8(std::uint32_t point, int length) {
  if (length == 1) return std::string(1, static_cast<char>(point));
  std::string bytes;
  for (int i = 0; i < length - 1; ++i, point >>= 6) {
    bytes.insert(bytes.begin(), static_cast<char>(0x80 | (point & 0x3f)));
  }
  const std::uint32_t lead = length == 2 ? 0xc0 : length == 3 ? 0xe0 : 0xf0;
  bytes.insert(bytes.begin(), static_cast<char>(lead | point));
  return bytes;
}

std::string hex4(std::uint32_t value) {
  std::string out;
  for (int shift = 12; shift >= 0; shift -= 4) out += "0123456789abcdef"[value >> shift & 15];
  return out;
}

TEST(Character, utf8_is_accepted_in_its_shortest_form_only) {
  for (std::uint32_t point = 0x20; point < 0x120000; ++point) {
    const int shortest = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    const bool is_scalar = point < 0x110000 && (point < 0xd800 || point > 0xdfff);
    const bool needs_escape = point == '"' || point == '\\';
    for (const Step step : {next_in_character, next_in_plain_character}) {
      ASSERT_EQ(is_one(step, utf8(point, shortest)), is_scalar && !needs_escape) << point;
      for (int length = shortest + 1; length <= 4; ++length) {
        ASSERT_FALSE(is_one(step, utf8(point, length))) << point;
      }
    }
  }
}

TEST(Character, bytes_that_begin_nothing_are_refused) {
  for (int byte = 0; byte < 256; ++byte) {
    const bool begins =
        (byte >= 0x20 && byte < 0x80 && byte != '"') || (byte >= 0xc2 && byte <= 0xf4);
    EXPECT_EQ(next_in_character(kCharacterStart, static_cast<std::uint8_t>(byte)) != kNoCharacter,
              begins)
        << byte;
  }
}

TEST(Character, unicode_escapes_are_accepted_unless_they_are_half_a_pair) {
  for (std::uint32_t unit = 0; unit < 0x10000; ++unit) {
    const bool is_surrogate = unit >= 0xd800 && unit <= 0xdfff;
    ASSERT_EQ(is_one(next_in_character, "\\u" + hex4(unit)), !is_surrogate) << unit;
  }
  PhiloxStream random(6);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint32_t high = 0xd400 + random.below(0x1000), low = 0xd800 + random.below(0x800);
    const bool is_pair = high >= 0xd800 && high < 0xdc00 && low >= 0xdc00;
    ASSERT_EQ(is_one(next_in_character, "\\u" + hex4(high) + "\\u" + hex4(low)), is_pair);
  }
}

TEST(Character, the_one_spelling_of_names_is_that_of_the_json_library) {
  for (std::uint32_t point = 0; point < 0x80; ++point) {
    const std::string quoted = Json(std::string(1, static_cast<char>(point))).dump();
    const std::string spelled = quoted.substr(1, quoted.size() - 2);
    EXPECT_TRUE(is_one(next_in_plain_character, spelled)) << spelled;
    const std::string escape = "\\u" + hex4(point);
    EXPECT_EQ(is_one(next_in_plain_character, escape), escape == spelled) << escape;
  }
  EXPECT_FALSE(is_one(next_in_plain_character, "\\/"));
  EXPECT_FALSE(is_one(next_in_plain_character, "\\u001F"));
  EXPECT_TRUE(is_one(next_in_character, "\\/"));
}

}  // namespace
}  // namespace hone::infer::grammar
