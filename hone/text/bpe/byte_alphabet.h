// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hone::text {

// GPT-2's spelling of bytes: 33–126, 161–172 and 174–255 are their own code points; the other 68
// are U+0100 and up, in order.
char32_t byte_to_letter(std::uint8_t byte);

std::string spell_bytes(std::string_view bytes);
// Returns nullopt if a character is not in this alphabet.
std::optional<std::string> unspell_bytes(std::string_view piece);

// SentencePiece's spelling of a byte: "<0x0A>".
std::string byte_piece(std::uint8_t byte);
std::optional<std::uint8_t> parse_byte_piece(std::string_view piece);

}  // namespace hone::text
