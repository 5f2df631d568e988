// SPDX-License-Identifier: Apache-2.0
#include "hone/text/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "hone/core/check.h"
#include "hone/text/bpe/bpe_tokenizer.h"
#include "hone/text/bpe/byte_alphabet.h"

namespace hone::text {
namespace {

void check_pieces(const Vocabulary& v, std::string_view where) {
  if (v.pieces.empty() || v.pieces.size() > kMostPieces) {
    fail_corrupt(where, concat("a vocabulary of 1 to ", kMostPieces, " pieces"),
                 concat(v.pieces.size()));
  }
  if (v.types.size() != v.pieces.size()) {
    fail_corrupt(where, concat("one token type for each of ", v.pieces.size(), " pieces"),
                 concat(v.types.size()));
  }
  std::unordered_set<std::string_view> seen;
  for (std::size_t id = 0; id < v.pieces.size(); ++id) {
    const std::string& piece = v.pieces[id];
    if (piece.empty()) fail_corrupt(where, concat("Token ", id, " has an empty piece."));
    if (piece.size() > kMostPieceBytes) {
      fail_corrupt(where, concat("at most ", kMostPieceBytes, " bytes in the piece of token ", id),
                   concat(piece.size()));
    }
    if (!seen.insert(piece).second) {
      fail_corrupt(where,
                   concat("The piece \"", piece, "\" occurs twice, again as token ", id, "."));
    }
    const auto type = static_cast<int>(v.types[id]);
    if (type < 1 || type > 6) {
      fail_corrupt(where, concat("a token type from 1 to 6 for token ", id), concat(type));
    }
    if (v.types[id] == TokenType::Byte && !parse_byte_piece(piece)) {
      fail_corrupt(where, concat("a byte piece like <0x0A> as token ", id),
                   concat("\"", piece, "\""));
    }
  }
}

void check_id(const Vocabulary& v, std::optional<TokenId> id, std::string_view name,
              std::string_view where) {
  if (id && (*id < 0 || static_cast<std::size_t>(*id) >= v.pieces.size())) {
    fail_corrupt(where, concat("a ", name, " id below ", v.pieces.size()), concat(*id));
  }
}

void check_scores(const Vocabulary& v, std::string_view where) {
  const bool needed = v.model == TokenizerModel::SentencePieceBpe && v.merges.empty();
  if ((needed || !v.scores.empty()) && v.scores.size() != v.pieces.size()) {
    fail_corrupt(where, concat("one score for each of ", v.pieces.size(), " pieces"),
                 concat(v.scores.size()));
  }
  if (std::any_of(v.scores.begin(), v.scores.end(), [](float s) { return std::isnan(s); })) {
    fail_corrupt(where, "A score is NaN.");
  }
}

}  // namespace

std::shared_ptr<const Tokenizer> make_tokenizer(Vocabulary vocabulary, std::string_view where) {
  check_pieces(vocabulary, where);
  check_scores(vocabulary, where);
  check_id(vocabulary, vocabulary.bos, "BOS", where);
  check_id(vocabulary, vocabulary.eos, "EOS", where);
  check_id(vocabulary, vocabulary.unknown, "unknown-token", where);
  check_id(vocabulary, vocabulary.padding, "padding", where);
  for (const AddedToken& token : vocabulary.added_tokens) {
    check_id(vocabulary, token.id, "added token", where);
  }
  if (vocabulary.add_bos && !vocabulary.bos)
    fail_corrupt(where, "add_bos is set, but there is no BOS token.");
  if (vocabulary.add_eos && !vocabulary.eos)
    fail_corrupt(where, "add_eos is set, but there is no EOS token.");
  return vocabulary.model == TokenizerModel::ByteLevelBpe
             ? make_byte_level_bpe(std::move(vocabulary), where)
             : make_sentencepiece_bpe(std::move(vocabulary), where);
}

std::vector<AddedToken> effective_added_tokens(const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens = vocabulary.added_tokens;
  std::unordered_set<TokenId> listed;
  for (const AddedToken& token : tokens) listed.insert(token.id);
  for (std::size_t i = 0; i < vocabulary.types.size(); ++i) {
    const TokenType type = vocabulary.types[i];
    const auto id = static_cast<TokenId>(i);
    const bool special = type == TokenType::Control || type == TokenType::Unknown;
    if (!special && type != TokenType::UserDefined) continue;
    if (!listed.contains(id)) tokens.push_back({.id = id, .special = special});
  }
  std::sort(tokens.begin(), tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return tokens;
}

std::vector<std::pair<std::string, std::string>> merges_by_score(const Vocabulary& vocabulary) {
  if (!vocabulary.merges.empty() || vocabulary.scores.empty()) return vocabulary.merges;
  std::unordered_map<std::string_view, TokenId> ids;
  for (std::size_t i = 0; i < vocabulary.pieces.size(); ++i) {
    if (vocabulary.types[i] == TokenType::Normal) {
      ids.emplace(vocabulary.pieces[i], static_cast<TokenId>(i));
    }
  }
  struct Split {
    float score;
    TokenId whole, left, right;
  };
  std::vector<Split> splits;
  for (const auto& [piece, id] : ids) {
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      const auto left = ids.find(piece.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(piece.substr(cut));
      if (right == ids.end()) continue;
      splits.push_back({vocabulary.scores[id], id, left->second, right->second});
    }
  }
  std::sort(splits.begin(), splits.end(), [](const Split& a, const Split& b) {
    return std::tuple(-a.score, a.whole, a.left, a.right) <
           std::tuple(-b.score, b.whole, b.left, b.right);
  });
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(splits.size());
  for (const Split& split : splits) {
    merges.emplace_back(vocabulary.pieces[split.left], vocabulary.pieces[split.right]);
  }
  return merges;
}

bool scores_decide_merges(const Vocabulary& vocabulary) {
  if (vocabulary.merges.empty()) return true;
  if (vocabulary.scores.size() != vocabulary.pieces.size()) return false;
  Vocabulary scored = vocabulary;
  scored.merges.clear();
  const auto expected = merges_by_score(scored);
  // The order of merges with the same union does not matter.
  const auto by_union = [](const auto& merges) {
    std::vector<std::pair<std::string, std::vector<std::string>>> groups;
    for (const auto& [left, right] : merges) {
      if (groups.empty() || groups.back().first != left + right) {
        groups.emplace_back(left + right, std::vector<std::string>());
      }
      groups.back().second.push_back(left);
    }
    for (auto& group : groups) std::sort(group.second.begin(), group.second.end());
    return groups;
  };
  return by_union(vocabulary.merges) == by_union(expected);
}

std::string padding_piece(std::size_t id) { return concat("[PAD", id, "]"); }

std::size_t unpadded_size(const Vocabulary& vocabulary) {
  std::size_t size = vocabulary.pieces.size();
  const auto is_padding = [&](std::size_t id) {
    return vocabulary.types[id] == TokenType::Unused &&
           vocabulary.pieces[id] == padding_piece(id) &&
           vocabulary.padding != static_cast<TokenId>(id);
  };
  while (size > 0 && is_padding(size - 1)) --size;
  return size;
}

std::optional<TokenId> find_piece(const Vocabulary& vocabulary, std::string_view piece) {
  const auto found = std::find(vocabulary.pieces.begin(), vocabulary.pieces.end(), piece);
  if (found == vocabulary.pieces.end()) return std::nullopt;
  return static_cast<TokenId>(found - vocabulary.pieces.begin());
}

}  // namespace hone::text
