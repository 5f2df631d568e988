// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace hone::infer::grammar {

// The state of reading one character of a JSON string: its UTF-8 bytes or its escape sequence,
// where two \u of a surrogate pair are one character.
inline constexpr std::uint8_t kCharacterStart = 0, kNoCharacter = 0xff;
inline constexpr std::uint8_t kCharacterStates = 25;  // all states are less

// The state after one more byte: kCharacterStart after the last byte of the character, kNoCharacter
// if the byte is not allowed. Rejects control characters, quotes at the start, overlong and
// surrogate UTF-8, and \u of half a pair.
std::uint8_t next_in_character(std::uint8_t state, std::uint8_t byte);

// The same for characters with one spelling only: \" \\ \b \f \n \r \t, \u00 and two lower-case
// hexadecimal digits for other control characters, and UTF-8 for everything else.
std::uint8_t next_in_plain_character(std::uint8_t state, std::uint8_t byte);

}  // namespace hone::infer::grammar
