// SPDX-License-Identifier: Apache-2.0
#include "hone/text/bpe/byte_alphabet.h"

#include <array>

#include "hone/text/unicode/utf8.h"

namespace hone::text {
namespace {

constexpr int kLetters = 256 + 68;

constexpr bool is_own_letter(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct Alphabet {
  std::array<char32_t, 256> letter{};
  std::array<std::int16_t, kLetters> byte{};  // -1 if it is not a letter
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte) byte = -1;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const int letter = is_own_letter(byte) ? byte : next++;
    alphabet.letter[byte] = static_cast<char32_t>(letter);
    alphabet.byte[letter] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

constexpr std::string_view kHexDigits = "0123456789ABCDEF";

}  // namespace

char32_t byte_to_letter(std::uint8_t byte) { return kAlphabet.letter[byte]; }

std::string spell_bytes(std::string_view bytes) {
  std::string piece;
  for (const char byte : bytes) append_utf8(piece, byte_to_letter(static_cast<std::uint8_t>(byte)));
  return piece;
}

std::optional<std::string> unspell_bytes(std::string_view piece) {
  std::string bytes;
  while (!piece.empty()) {
    const CodePoint c = decode_utf8(piece);
    if (c.bytes == 0 || c.value >= kLetters || kAlphabet.byte[c.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[c.value]));
    piece.remove_prefix(static_cast<std::size_t>(c.bytes));
  }
  return bytes;
}

std::string byte_piece(std::uint8_t byte) {
  return {'<', '0', 'x', kHexDigits[byte >> 4], kHexDigits[byte & 15], '>'};
}

std::optional<std::uint8_t> parse_byte_piece(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return std::nullopt;
  const auto high = kHexDigits.find(piece[3]), low = kHexDigits.find(piece[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<std::uint8_t>(high * 16 + low);
}

}  // namespace hone::text
