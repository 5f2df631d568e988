// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "hone/core/check.h"
#include "hone/text/bpe/bpe_tokenizer.h"
#include "hone/text/bpe/byte_alphabet.h"
#include "hone/text/bpe/merge.h"
#include "hone/text/bpe/pair_table.h"
#include "hone/text/bpe/space_mark.h"
#include "hone/text/unicode/utf8.h"

namespace hone::text {
namespace {

constexpr std::size_t kMaxText = std::size_t{1} << 30;       // symbol numbers have 32 bits
constexpr std::string_view kUnknownText = " \xE2\x81\x87 ";  // SentencePiece's decoding of it

// SentencePiece's BPE: spaces become "▁", the whole text is one word of characters, and the
// adjacent pair whose union has the highest score merges first. If the vocabulary has merges, their
// order decides.
class SentencePieceBpe final : public BpeTokenizer {
 public:
  SentencePieceBpe(Vocabulary vocabulary, std::string_view where);
  std::string_view kind() const override { return "SentencePiece BPE"; }

 private:
  // The length of an unused piece's left half when it was last merged.
  using Splits = std::unordered_map<TokenId, std::uint32_t>;

  void index_pieces();
  void index_ranks(std::string_view where);
  void read_merges(std::string_view where);
  std::string_view normalize(std::string_view text, bool first,
                             std::string& storage) const override;
  void encode_plain(std::string_view text, bool first, std::vector<TokenId>& ids) const override;
  bool strips_dummy_space() const override { return vocabulary_.add_space_prefix; }
  std::string collapse_spaces(std::string_view text) const;
  void encode_escaped(std::string_view text, std::vector<TokenId>& ids) const;
  std::vector<Symbol> split_symbols(std::string_view text) const;
  bool find_merge(std::string_view text, const Symbol& left, const Symbol& right,
                  Merge& merge) const;
  TokenId find_id(std::string_view piece) const;
  void emit(std::string_view text, TokenId id, const Splits& splits,
            std::vector<TokenId>& ids) const;
  void emit_unknown(std::string_view text, std::vector<TokenId>& ids) const;
  bool is_frozen(TokenId id) const {
    return id != kNoToken && vocabulary_.types[id] == TokenType::UserDefined;
  }

  std::array<TokenId, 256> byte_ids_{};
  std::unordered_map<std::string_view, TokenId> ids_;  // pieces that text can turn into
  std::vector<std::uint32_t>
      ranks_;  // per id; equal scores have equal ranks; empty if there are merges
  std::size_t longest_piece_ = 0;
  PairTable merges_;
  AddedTokenMatcher atoms_;  // user-defined pieces, which are matched in the text and never merged
};

SentencePieceBpe::SentencePieceBpe(Vocabulary vocabulary, std::string_view where)
    : BpeTokenizer(std::move(vocabulary)) {
  index_pieces();
  if (vocabulary_.merges.empty()) {
    index_ranks(where);
  } else {
    read_merges(where);
  }
  std::vector<AddedToken> tokens = effective_added_tokens(vocabulary_);
  std::unordered_set<TokenId> listed;
  for (const AddedToken& token : vocabulary_.added_tokens) listed.insert(token.id);
  std::erase_if(tokens, [&](const AddedToken& token) {
    const bool atom = is_frozen(token.id) && !listed.contains(token.id);
    if (atom) atoms_.add(vocabulary_.pieces[token.id], token);
    return atom;
  });
  add_tokens(tokens);
}

void SentencePieceBpe::index_pieces() {
  byte_ids_.fill(kNoToken);
  bytes_.reserve(vocabulary_.pieces.size());
  for (const std::string& piece : vocabulary_.pieces) {
    const auto id = static_cast<TokenId>(bytes_.size());
    const TokenType type = vocabulary_.types[id];
    if (type == TokenType::Byte) {
      const std::uint8_t byte = *parse_byte_piece(piece);
      if (vocabulary_.byte_fallback) byte_ids_[byte] = id;
      bytes_.emplace_back(1, static_cast<char>(byte));
      continue;
    }
    if (type != TokenType::Control && type != TokenType::Unknown) {
      ids_.emplace(piece, id);
      longest_piece_ = std::max(longest_piece_, piece.size());
    }
    bytes_.push_back(type == TokenType::Unknown ? std::string(kUnknownText) : unmark_spaces(piece));
  }
}

void SentencePieceBpe::index_ranks(std::string_view where) {
  constexpr std::size_t kMostHalves = std::size_t{1} << 23;
  std::vector<float> scores(vocabulary_.scores);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  for (const float score : vocabulary_.scores) {
    const auto rank = std::lower_bound(scores.begin(), scores.end(), score, std::greater<>());
    ranks_.push_back(static_cast<std::uint32_t>(rank - scores.begin()));
  }
  std::vector<std::pair<TokenId, TokenId>> halves;
  std::vector<TokenId> wholes;
  for (const auto& [piece, id] : ids_) {
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      const TokenId left = find_id(piece.substr(0, cut));
      if (left == kNoToken || is_frozen(left)) continue;
      const TokenId right = find_id(piece.substr(cut));
      if (right == kNoToken || is_frozen(right)) continue;
      if (halves.size() == kMostHalves) {
        fail_corrupt(where, concat("at most ", kMostHalves, " pairs of pieces that form a piece"),
                     "more");
      }
      halves.emplace_back(left, right);
      wholes.push_back(id);
    }
  }
  merges_ = PairTable(halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    merges_.insert(halves[i].first, halves[i].second, {ranks_[wholes[i]], wholes[i]});
  }
}

void SentencePieceBpe::read_merges(std::string_view where) {
  std::unordered_map<std::string_view, TokenId> all;
  for (const std::string& piece : vocabulary_.pieces) {
    all.emplace(piece, static_cast<TokenId>(all.size()));
  }
  merges_ = index_merges(vocabulary_, all, where);
}

std::string SentencePieceBpe::collapse_spaces(std::string_view text) const {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out.push_back(c);
  }
  std::string_view kept = out;
  while (kept.ends_with(' ') || kept.ends_with(kSpaceMark)) {
    kept.remove_suffix(kept.ends_with(' ') ? 1 : kSpaceMark.size());
  }
  out.resize(kept.size());
  return out;
}

std::string_view SentencePieceBpe::normalize(std::string_view text, bool first,
                                             std::string& storage) const {
  if (vocabulary_.prefix_if_missing) return text;  // encode_plain() does everything
  const std::string collapsed =
      vocabulary_.remove_extra_whitespaces ? collapse_spaces(text) : std::string();
  const std::string_view source = vocabulary_.remove_extra_whitespaces ? collapsed : text;
  const bool prefix =
      vocabulary_.add_space_prefix && !source.empty() && (first || !vocabulary_.prefix_only_first);
  storage = concat(prefix ? kSpaceMark : std::string_view(), mark_spaces(source));
  return storage;
}

void SentencePieceBpe::encode_plain(std::string_view text, bool first,
                                    std::vector<TokenId>& ids) const {
  if (!vocabulary_.prefix_if_missing) return encode_escaped(text, ids);
  const std::string marked = mark_spaces(text);
  const bool prefix = vocabulary_.add_space_prefix && !marked.starts_with(kSpaceMark) &&
                      (first || !vocabulary_.prefix_only_first);
  encode_escaped(prefix ? concat(kSpaceMark, marked) : marked, ids);
}

TokenId SentencePieceBpe::find_id(std::string_view piece) const {
  if (piece.size() > longest_piece_) return kNoToken;
  const auto found = ids_.find(piece);
  return found == ids_.end() ? kNoToken : found->second;
}

std::vector<Symbol> SentencePieceBpe::split_symbols(std::string_view text) const {
  std::vector<Symbol> symbols;
  symbols.reserve(text.size());
  std::uint32_t begin = 0;
  while (begin < text.size()) {
    const std::string_view rest = text.substr(begin);
    auto [length, id] = atoms_.match_prefix(rest);
    if (length == 0) {
      length = static_cast<std::size_t>(std::max(1, decode_utf8(rest.substr(0, 4)).bytes));
      id = find_id(rest.substr(0, length));
    }
    symbols.push_back({0, 0, begin, static_cast<std::uint32_t>(length), id});
    begin += static_cast<std::uint32_t>(length);
  }
  link_symbols(symbols);
  return symbols;
}

bool SentencePieceBpe::find_merge(std::string_view text, const Symbol& left, const Symbol& right,
                                  Merge& merge) const {
  if (left.id != kNoToken && right.id != kNoToken) {
    const Merge* found = merges_.find(left.id, right.id);
    if (found != nullptr) merge = *found;
    return found != nullptr;
  }
  // A character that is not a piece may still be part of one.
  if (ranks_.empty() || is_frozen(left.id) || is_frozen(right.id)) return false;
  const TokenId id = find_id(text.substr(left.begin, std::size_t{left.length} + right.length));
  if (id == kNoToken) return false;
  merge = {ranks_[id], id};
  return true;
}

void SentencePieceBpe::encode_escaped(std::string_view text, std::vector<TokenId>& ids) const {
  HONE_CHECK(text.size() <= kMaxText, "tokenizer", "a text of at most 1 GiB", text.size());
  if (text.empty()) return;
  std::vector<Symbol> symbols = split_symbols(text);
  CandidateQueue queue;
  Splits splits;
  merge_symbols(
      symbols, queue,
      [&](const Symbol& left, const Symbol& right, Merge& merge) {
        return find_merge(text, left, right, merge);
      },
      [&](const Symbol& left, const Symbol&, TokenId id) {
        if (vocabulary_.types[id] == TokenType::Unused) splits[id] = left.length;
      });
  for (std::int32_t i = 0; i >= 0; i = symbols[i].next) {
    emit(text.substr(symbols[i].begin, symbols[i].length), symbols[i].id, splits, ids);
  }
}

// An unused piece may only be an intermediate step towards a longer one. Where it remains, its two
// halves are emitted instead.
void SentencePieceBpe::emit(std::string_view text, TokenId id, const Splits& splits,
                            std::vector<TokenId>& ids) const {
  if (id == kNoToken) return emit_unknown(text, ids);
  const auto split = splits.find(id);
  if (split == splits.end()) return ids.push_back(id);
  for (const std::string_view half : {text.substr(0, split->second), text.substr(split->second)}) {
    emit(half, find_id(half), splits, ids);
  }
}

void SentencePieceBpe::emit_unknown(std::string_view text, std::vector<TokenId>& ids) const {
  const bool spelled = std::all_of(text.begin(), text.end(), [this](char byte) {
    return byte_ids_[static_cast<std::uint8_t>(byte)] != kNoToken;
  });
  if (spelled) {
    for (const char byte : text) ids.push_back(byte_ids_[static_cast<std::uint8_t>(byte)]);
    return;
  }
  HONE_REQUIRE(vocabulary_.unknown.has_value(), "tokenizer",
               concat("The text has \"", text, "\", which is not in the vocabulary."));
  const bool fused = vocabulary_.fuse_unknown && !ids.empty() && ids.back() == *vocabulary_.unknown;
  if (!fused) ids.push_back(*vocabulary_.unknown);
}

}  // namespace

std::shared_ptr<const Tokenizer> make_sentencepiece_bpe(Vocabulary vocabulary,
                                                        std::string_view where) {
  return std::make_shared<SentencePieceBpe>(std::move(vocabulary), where);
}

}  // namespace hone::text
