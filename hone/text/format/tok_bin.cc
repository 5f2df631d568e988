// SPDX-License-Identifier: Apache-2.0
#include "hone/text/format/tok_bin.h"

#include <algorithm>
#include <cstring>

#include "hone/text/bpe/byte_alphabet.h"
#include "hone/text/bpe/space_mark.h"
#include "hone/text/format/byte_reader.h"

namespace hone::text {
namespace {

constexpr TokenId kUnknown = 0, kBos = 1, kEos = 2, kFirstByte = 3, kFirstNormal = 259;

std::string_view reserved_spelling(TokenId id) {
  constexpr std::string_view kSpellings[] = {"<unk>", "<s>", "</s>"};
  return kSpellings[id];
}

// Removes the line breaks that llama2.c writes around reserved tokens.
std::string strip_breaks(std::string_view piece) {
  if (piece.starts_with('\n') && piece.ends_with('\n') && piece.size() > 2) {
    return std::string(piece.substr(1, piece.size() - 2));
  }
  return std::string(piece);
}

void add_token(Vocabulary& v, float score, std::string_view bytes, std::string_view where) {
  const auto id = static_cast<TokenId>(v.pieces.size());
  std::string piece = mark_spaces(bytes);
  TokenType type = TokenType::Normal;
  if (id <= kEos) {
    piece = strip_breaks(bytes);
    if (piece != reserved_spelling(id)) {
      fail_corrupt(where, concat(reserved_spelling(id), " as token ", id),
                   concat("\"", piece.substr(0, 80), "\""));
    }
    type = id == kUnknown ? TokenType::Unknown : TokenType::Control;
  } else if (id < kFirstNormal) {
    if (piece != byte_piece(static_cast<std::uint8_t>(id - kFirstByte))) {
      fail_corrupt(where, concat("a byte piece as token ", id),
                   concat("\"", piece.substr(0, 80), "\""));
    }
    type = TokenType::Byte;
  }
  v.pieces.push_back(std::move(piece));
  v.types.push_back(type);
  v.scores.push_back(score);
}

void append_number(std::string& out, auto value) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  out.append(bytes, sizeof(value));
}

std::string spell_for_tok_bin(const Vocabulary& v, TokenId id) {
  if (id == kBos || id == kEos) return concat("\n", v.pieces[id], "\n");
  return v.types[id] == TokenType::Byte ? v.pieces[id] : unmark_spaces(v.pieces[id]);
}

}  // namespace

Vocabulary read_tok_bin(std::span<const std::byte> file, std::string_view where) {
  ByteReader reader(file, where);
  Vocabulary v;
  v.model = TokenizerModel::SentencePieceBpe;
  const auto longest = reader.read<std::int32_t>("the longest piece's length");
  while (!reader.at_end()) {
    const auto score = reader.read<float>("a score");
    const auto length = reader.read<std::int32_t>("a piece's length");
    if (length < 0 || length > longest) {
      fail_corrupt(where, concat("a piece of 0 to ", longest, " bytes as token ", v.pieces.size()),
                   concat(length));
    }
    if (v.pieces.size() == kMostPieces) {
      fail_corrupt(where, concat("at most ", kMostPieces, " tokens"), "more");
    }
    add_token(v, score, reader.take(static_cast<std::uint64_t>(length), "a piece"), where);
  }
  if (v.pieces.size() <= kFirstNormal) {
    fail_corrupt(where, concat("more than ", kFirstNormal, " tokens"), concat(v.pieces.size()));
  }
  v.unknown = kUnknown;
  v.bos = kBos;
  v.eos = kEos;
  v.add_bos = true;
  v.add_space_prefix = true;
  return v;
}

bool looks_like_tok_bin(std::span<const std::byte> file) {
  try {
    read_tok_bin(file, "tok.bin");
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string write_tok_bin(const Vocabulary& v) {
  constexpr std::string_view kOp = "tok.bin";
  if (v.model != TokenizerModel::SentencePieceBpe || v.scores.size() != v.pieces.size()) {
    fail_unsupported(kOp, "The format holds only SentencePiece vocabularies with scores.");
  }
  if (!scores_decide_merges(v)) {
    fail_unsupported(kOp, "The order of merges does not follow from the scores of pieces.");
  }
  if (v.pieces.size() <= kFirstNormal) {
    fail_unsupported(kOp, concat("more than ", kFirstNormal, " tokens"), concat(v.pieces.size()));
  }
  std::string out;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < v.pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const bool reserved = id <= kEos && v.pieces[id] == reserved_spelling(id);
    const bool byte = id >= kFirstByte && id < kFirstNormal && v.types[id] == TokenType::Byte;
    if (id < kFirstNormal && !reserved && !byte) {
      fail_unsupported(kOp, "<unk>, <s>, </s> and the 256 bytes as the first tokens",
                       concat("\"", v.pieces[id], "\" as token ", id));
    }
    const std::string spelled = spell_for_tok_bin(v, id);
    longest = std::max(longest, spelled.size());
    append_number(out, v.scores[i]);
    append_number(out, static_cast<std::int32_t>(spelled.size()));
    out += spelled;
  }
  std::string header;
  append_number(header, static_cast<std::int32_t>(longest));
  return header + out;
}

}  // namespace hone::text
