// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/token_text.h"

#include "hone/core/check.h"
#include "hone/text/unicode/utf8.h"

namespace hone::server {

std::string token_bytes(const text::Tokenizer& tokenizer, text::TokenId id) {
  if (id >= tokenizer.vocab_size()) return concat("<|", id, "|>");
  return tokenizer.is_control(id) ? tokenizer.piece(id) : tokenizer.piece_bytes(id);
}

std::string token_text(const text::Tokenizer& tokenizer, text::TokenId id) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const std::string bytes = token_bytes(tokenizer, id);
  if (text::is_valid_utf8(bytes)) return bytes;
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      out.push_back(c);
    } else {
      out += concat("\\x", kHex[byte >> 4], kHex[byte & 15]);
    }
  }
  return out;
}

Json token_json(const text::Tokenizer& tokenizer, text::TokenId id, double logprob) {
  Json bytes = Json::array();
  for (const char c : token_bytes(tokenizer, id)) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token_text(tokenizer, id)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

}  // namespace hone::server
