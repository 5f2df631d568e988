// SPDX-License-Identifier: Apache-2.0
#include "hone/text/bpe/bpe_tokenizer.h"

#include <algorithm>

#include "hone/core/check.h"

namespace hone::text {

std::size_t BpeTokenizer::checked(TokenId id) const {
  HONE_CHECK(id >= 0 && id < vocab_size(), "tokenizer",
             concat("a token id in [0, ", vocab_size(), ")"), id);
  return static_cast<std::size_t>(id);
}

void BpeTokenizer::add_tokens(const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens) {
    const std::string& piece = vocabulary_.pieces[token.id];
    std::string storage;
    const std::string_view spelling =
        token.normalized ? normalize(piece, true, storage) : std::string_view(piece);
    auto& matchers = token.normalized ? normalized_ : raw_;
    matchers[1].add(spelling, token);
    if (!token.special) matchers[0].add(spelling, token);
    spelled_.add(piece, token);
  }
}

std::vector<TokenId> BpeTokenizer::encode(std::string_view text,
                                          const EncodeOptions& options) const {
  std::vector<TokenId> ids;
  if (options.add_bos && vocabulary_.add_bos) ids.push_back(*vocabulary_.bos);
  const std::size_t which = options.parse_special ? 1 : 0;
  bool first = true;
  std::string storage;
  const auto found = [&](TokenId id) {
    ids.push_back(id);
    first = false;
  };
  raw_[which].split(
      text,
      [&](std::string_view stretch) {
        const std::string_view normalized = normalize(stretch, first, storage);
        normalized_[which].split(
            normalized,
            [&](std::string_view plain) {
              encode_plain(plain, first, ids);
              first = false;
            },
            found);
        first = false;
      },
      found);
  if (options.add_bos && vocabulary_.add_eos) ids.push_back(*vocabulary_.eos);
  return ids;
}

std::vector<TokenId> BpeTokenizer::encode(std::span<const TextSegment> segments) const {
  std::string text;
  std::vector<std::size_t> begins;  // of the segments that are not empty
  std::vector<const TextSegment*> kept;
  for (const TextSegment& segment : segments) {
    if (segment.text.empty()) continue;
    begins.push_back(text.size());
    kept.push_back(&segment);
    text += segment.text;
  }
  const auto allows = [&](const AddedToken& token, std::size_t begin, std::size_t end) {
    const auto first = std::ranges::upper_bound(begins, begin) - begins.begin() - 1;
    for (auto i = static_cast<std::size_t>(first); i < kept.size() && begins[i] < end; ++i) {
      if (!(token.special ? kept[i]->allow_special : kept[i]->allow_added)) return false;
    }
    return true;
  };
  std::vector<TokenId> ids;
  std::string storage;
  bool first = true;
  const auto encode_stretch = [&](std::string_view stretch) {
    encode_plain(normalize(stretch, first, storage), first, ids);
    first = false;
  };
  spelled_.split(text, allows, encode_stretch, [&](TokenId id) {
    ids.push_back(id);
    first = false;
  });
  return ids;
}

std::string BpeTokenizer::decode(std::span<const TokenId> ids, bool keep_special) const {
  std::string text;
  bool at_start = true;
  for (const TokenId id : ids) {
    const std::string& bytes = bytes_[checked(id)];
    if (vocabulary_.types[id] == TokenType::Control) {
      if (keep_special) text += bytes;
      continue;
    }
    const bool dummy = at_start && strips_dummy_space() && !bytes.empty() && bytes[0] == ' ';
    text.append(bytes, dummy ? 1 : 0);
    at_start = false;
  }
  return text;
}

}  // namespace hone::text
