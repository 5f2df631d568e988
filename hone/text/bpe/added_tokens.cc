// SPDX-License-Identifier: Apache-2.0
#include "hone/text/bpe/added_tokens.h"

#include <algorithm>

#include "hone/text/unicode/splitter.h"
#include "hone/text/unicode/utf8.h"

namespace hone::text {
namespace {

// The last character of `text`, or its last byte if that is not part of valid UTF-8.
std::string_view last_character(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0 && text.size() - begin < 4) {
    --begin;
    if ((static_cast<std::uint8_t>(text[begin]) & 0xC0u) != 0x80u) break;
  }
  return text.substr(begin);
}

bool is_space(std::string_view character) {
  const CodePoint c = decode_utf8(character);
  return c.bytes > 0 && is_white_space(c.value);
}

bool is_word(std::string_view character) {
  return decode_utf8(character).bytes > 0 && is_word_character(character);
}

std::string_view first_character(std::string_view text) {
  return text.substr(0, static_cast<std::size_t>(std::max(1, decode_utf8(text).bytes)));
}

constexpr auto allows_all = [](const AddedToken&, std::size_t, std::size_t) { return true; };

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool free_left = begin == 0 || !is_word(last_character(text.substr(0, begin)));
  return free_left && (end == text.size() || !is_word(first_character(text.substr(end))));
}

std::size_t skip_spaces_left(std::string_view text, std::size_t begin, std::size_t stop) {
  while (begin > stop) {
    const std::string_view c = last_character(text.substr(0, begin));
    if (!is_space(c)) break;
    begin -= c.size();
  }
  return std::max(begin, stop);
}

std::size_t skip_spaces_right(std::string_view text, std::size_t end) {
  while (end < text.size() && is_space(first_character(text.substr(end)))) {
    end += first_character(text.substr(end)).size();
  }
  return end;
}

}  // namespace

void AddedTokenMatcher::add(std::string_view spelling, const AddedToken& token) {
  if (spelling.empty()) return;
  std::int32_t node = 0;
  for (const char c : spelling) {
    const auto byte = static_cast<std::uint8_t>(c);
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      nodes_.emplace_back();
      auto& children = nodes_[node].children;
      children.insert(std::lower_bound(children.begin(), children.end(), std::pair(byte, 0)),
                      {byte, next});
    }
    node = next;
  }
  starts_[static_cast<std::uint8_t>(spelling[0])] = true;
  nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
}

std::int32_t AddedTokenMatcher::child(std::int32_t node, std::uint8_t byte) const {
  const auto& children = nodes_[node].children;
  const auto found = std::lower_bound(children.begin(), children.end(), std::pair(byte, 0));
  return found != children.end() && found->first == byte ? found->second : -1;
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_at(std::string_view text, std::size_t begin,
                                                       Allows allows) const {
  Match match{begin, begin, -1};
  std::int32_t node = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    node = child(node, static_cast<std::uint8_t>(text[i]));
    if (node < 0) break;
    const std::int32_t token = nodes_[node].token;
    if (token >= 0 && allows(tokens_[token], begin, i + 1)) match = {begin, i + 1, token};
  }
  return match;
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, std::size_t from,
                                                 Allows allows) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<std::uint8_t>(text[begin])]) continue;
    const Match match = longest_at(text, begin, allows);
    if (match.token >= 0) return match;
  }
  return {text.size(), text.size(), -1};
}

std::pair<std::size_t, TokenId> AddedTokenMatcher::match_prefix(std::string_view text) const {
  if (text.empty() || !starts_[static_cast<std::uint8_t>(text[0])]) return {0, TokenId{-1}};
  const Match match = longest_at(text, 0, allows_all);
  return {match.end, match.token < 0 ? TokenId{-1} : tokens_[match.token].id};
}

void AddedTokenMatcher::split(std::string_view text, FunctionRef<void(std::string_view)> plain,
                              FunctionRef<void(TokenId)> found) const {
  split(text, allows_all, plain, found);
}

void AddedTokenMatcher::split(std::string_view text, Allows allows,
                              FunctionRef<void(std::string_view)> plain,
                              FunctionRef<void(TokenId)> found) const {
  std::size_t done = 0, from = 0;
  while (!tokens_.empty() && from < text.size()) {
    Match match = find(text, from, allows);
    if (match.token < 0) break;
    from = match.end;
    const AddedToken& token = tokens_[match.token];
    if (token.single_word && !stands_alone(text, match.begin, match.end)) continue;
    if (token.lstrip) match.begin = skip_spaces_left(text, match.begin, done);
    if (token.rstrip) match.end = skip_spaces_right(text, match.end);
    if (match.begin > done) plain(text.substr(done, match.begin - done));
    found(token.id);
    done = match.end;
  }
  if (done < text.size()) plain(text.substr(done));
}

}  // namespace hone::text
