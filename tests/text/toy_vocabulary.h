// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/function_ref.h"
#include "hone/core/philox.h"
#include "hone/text/bpe/byte_alphabet.h"
#include "hone/text/pre_tokenizer.h"
#include "hone/text/vocabulary.h"

namespace hone::test {

using text::TokenId;
using text::TokenType;
using text::Vocabulary;

using Ids = std::vector<TokenId>;

inline void add_piece(Vocabulary& v, const std::string& piece, TokenType type = TokenType::Normal,
                      float score = 0) {
  v.pieces.push_back(piece);
  v.types.push_back(type);
  if (v.model == text::TokenizerModel::SentencePieceBpe) v.scores.push_back(score);
}

// Ids 0–255 are the bytes; each merge adds its union when it is new; "<|end|>" is the last token.
inline Vocabulary toy_byte_level(const std::vector<std::pair<std::string, std::string>>& merges) {
  Vocabulary v;
  v.pattern = text::kGpt2Pattern;
  for (int byte = 0; byte < 256; ++byte) {
    add_piece(v, text::spell_bytes(std::string(1, static_cast<char>(byte))));
  }
  for (const auto& [left, right] : merges) {
    v.merges.emplace_back(text::spell_bytes(left), text::spell_bytes(right));
    const std::string whole = text::spell_bytes(left + right);
    if (!find_piece(v, whole)) add_piece(v, whole);
  }
  add_piece(v, "<|end|>", TokenType::Control);
  v.bos = v.eos = static_cast<TokenId>(v.pieces.size() - 1);
  return v;
}

// Ids as in a llama2.c file: <unk>, <s>, </s>, bytes 3–258, then `pieces` with their scores.
inline Vocabulary toy_sentencepiece(const std::vector<std::pair<std::string, float>>& pieces) {
  Vocabulary v;
  v.model = text::TokenizerModel::SentencePieceBpe;
  add_piece(v, "<unk>", TokenType::Unknown);
  add_piece(v, "<s>", TokenType::Control);
  add_piece(v, "</s>", TokenType::Control);
  for (int byte = 0; byte < 256; ++byte) {
    add_piece(v, text::byte_piece(static_cast<std::uint8_t>(byte)), TokenType::Byte);
  }
  for (const auto& [piece, score] : pieces) add_piece(v, piece, TokenType::Normal, score);
  v.unknown = 0;
  v.bos = 1;
  v.eos = 2;
  v.add_bos = true;
  v.add_space_prefix = true;
  return v;
}

// The spelled pieces of a text, without BOS.
inline std::vector<std::string> pieces_of(const text::Tokenizer& tokenizer, std::string_view text,
                                          bool parse_special = false) {
  std::vector<std::string> pieces;
  const text::EncodeOptions options{.add_bos = false, .parse_special = parse_special};
  for (const TokenId id : tokenizer.encode(text, options)) pieces.push_back(tokenizer.piece(id));
  return pieces;
}

// Bytes of every kind: ASCII, multi-byte characters, stray bytes.
inline std::string random_text(PhiloxStream& random, std::uint32_t length) {
  static const std::vector<std::string> kOddities = {
      "\xCC\x81", "\xC2\x85", "\xE1\xA0\x8E", "\r", "\r\n",     "  ",   "\xE2\x80\x8B",
      "'s",       "é",        "한",           "😀",  "\xFF",     "\xC3", "<|end|>",
      "\xE4\xBD", "\t",       "12345",        "½",  "\xC2\xA0", "the",  " the",
      "\xF0\x9F", "\n\n",     "AAAA"};
  std::string text;
  for (std::uint32_t i = 0; i < length; ++i) {
    if (random.below(3) == 0) {
      text += kOddities[random.below(static_cast<std::uint32_t>(kOddities.size()))];
    } else {
      text += static_cast<char>(random.below(4) == 0 ? random.below(256) : 32 + random.below(95));
    }
  }
  return text;
}

struct Failure {
  bool failed = false;
  ErrorCategory category = ErrorCategory::Internal;
  std::string message;
};

// What `action` throws; anything but hone::Error escapes and fails the test.
inline Failure failure_of(FunctionRef<void()> action) {
  try {
    action();
  } catch (const Error& error) {
    return {true, error.category(), error.what()};
  }
  return {};
}

}  // namespace hone::test
