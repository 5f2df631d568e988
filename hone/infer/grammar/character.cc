// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/character.h"

namespace hone::infer::grammar {
namespace {

enum CharacterState : std::uint8_t {
  Start = kCharacterStart,
  OneLeft,  // UTF-8 continuation bytes
  TwoLeft,
  ThreeLeft,
  AfterE0,  // the next byte is limited
  AfterEd,
  AfterF0,
  AfterF4,
  Escape,    // after the backslash
  Unicode,   // after \u
  UnicodeD,  // after \ud
  Hex3,      // that many digits are left
  Hex2,
  Hex1,
  High2,  // digits left of a high surrogate
  High1,
  LowEscape,  // before the backslash of the low surrogate
  LowU,
  LowD,
  LowHex,
  PlainUnicode,  // after \u, where only 00 and two digits may come
  PlainZero,
  PlainHigh,
  PlainLow0,
  PlainLow1,
};
static_assert(PlainLow1 + 1 == kCharacterStates);

bool is_between(std::uint8_t byte, std::uint8_t low, std::uint8_t high) {
  return byte >= low && byte <= high;
}

bool is_hex(std::uint8_t byte) {
  return is_between(byte, '0', '9') || is_between(byte, 'a', 'f') || is_between(byte, 'A', 'F');
}

std::uint8_t when(bool condition, CharacterState state) {
  return condition ? static_cast<std::uint8_t>(state) : kNoCharacter;
}

std::uint8_t begin_character(std::uint8_t byte) {
  if (byte == '\\') return Escape;
  if (byte < 0x80) return when(byte >= 0x20 && byte != '"', Start);
  if (is_between(byte, 0xc2, 0xdf)) return OneLeft;
  if (byte == 0xe0) return AfterE0;
  if (byte == 0xed) return AfterEd;
  if (is_between(byte, 0xe1, 0xef)) return TwoLeft;
  if (byte == 0xf0) return AfterF0;
  if (byte == 0xf4) return AfterF4;
  return when(is_between(byte, 0xf1, 0xf3), ThreeLeft);
}

std::uint8_t continue_utf8(std::uint8_t state, std::uint8_t byte) {
  switch (state) {
    case OneLeft:
      return when(is_between(byte, 0x80, 0xbf), Start);
    case TwoLeft:
      return when(is_between(byte, 0x80, 0xbf), OneLeft);
    case ThreeLeft:
      return when(is_between(byte, 0x80, 0xbf), TwoLeft);
    case AfterE0:
      return when(is_between(byte, 0xa0, 0xbf), OneLeft);
    case AfterEd:
      return when(is_between(byte, 0x80, 0x9f), OneLeft);
    case AfterF0:
      return when(is_between(byte, 0x90, 0xbf), TwoLeft);
    case AfterF4:
      return when(is_between(byte, 0x80, 0x8f), TwoLeft);
    default:
      return kNoCharacter;
  }
}

bool is_short_escape(std::uint8_t byte) {
  return byte == '"' || byte == '\\' || byte == 'b' || byte == 'f' || byte == 'n' || byte == 'r' ||
         byte == 't';
}

std::uint8_t continue_escape(std::uint8_t state, std::uint8_t byte) {
  switch (state) {
    case Escape:
      if (byte == 'u') return Unicode;
      return when(is_short_escape(byte) || byte == '/', Start);
    case Unicode:
      if (byte == 'd' || byte == 'D') return UnicodeD;
      return when(is_hex(byte), Hex3);
    case UnicodeD:
      if (is_between(byte, '0', '7')) return Hex2;
      return when(
          byte == '8' || byte == '9' || byte == 'a' || byte == 'b' || byte == 'A' || byte == 'B',
          High2);
    case Hex3:
      return when(is_hex(byte), Hex2);
    case Hex2:
      return when(is_hex(byte), Hex1);
    case Hex1:
      return when(is_hex(byte), Start);
    case High2:
      return when(is_hex(byte), High1);
    case High1:
      return when(is_hex(byte), LowEscape);
    case LowEscape:
      return when(byte == '\\', LowU);
    case LowU:
      return when(byte == 'u', LowD);
    case LowD:
      return when(byte == 'd' || byte == 'D', LowHex);
    case LowHex:
      return when(is_between(byte, 'c', 'f') || is_between(byte, 'C', 'F'), Hex2);
    default:
      return kNoCharacter;
  }
}

}  // namespace

std::uint8_t next_in_character(std::uint8_t state, std::uint8_t byte) {
  if (state == Start) return begin_character(byte);
  return state < Escape ? continue_utf8(state, byte) : continue_escape(state, byte);
}

std::uint8_t next_in_plain_character(std::uint8_t state, std::uint8_t byte) {
  if (state == Start) return begin_character(byte);
  switch (state) {
    case Escape:
      if (byte == 'u') return PlainUnicode;
      return when(is_short_escape(byte), Start);
    case PlainUnicode:
      return when(byte == '0', PlainZero);
    case PlainZero:
      return when(byte == '0', PlainHigh);
    case PlainHigh:
      if (byte == '0') return PlainLow0;
      return when(byte == '1', PlainLow1);
    case PlainLow0:  // U+0008, 9, A, C and D have short escapes
      return when(is_between(byte, '0', '7') || byte == 'b' || byte == 'e' || byte == 'f', Start);
    case PlainLow1:
      return when(is_between(byte, '0', '9') || is_between(byte, 'a', 'f'), Start);
    default:
      return continue_utf8(state, byte);
  }
}

}  // namespace hone::infer::grammar
