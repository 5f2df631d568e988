// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/string_tokens.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace hone::infer::grammar {

using text::TokenId;

class StringTokens::Builder {
 public:
  Builder(StringTokens& result, NextState next) : result_(result), next_(next) {}

  void add(std::uint8_t state, TokenId id, std::string_view bytes) {
    std::uint8_t character = state;
    std::uint32_t points = state == kCharacterStart ? 0 : 1;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (character == kCharacterStart) {
        if (bytes[i] == '"') return add_exit(state, {.id = id, .points = points}, bytes, i);
        ++points;
      }
      character = next_(character, static_cast<std::uint8_t>(bytes[i]));
      if (character == kNoCharacter) return;
    }
    inside_[state].emplace_back(points, id);
  }

  void finish(const std::vector<std::string>& tokens) {
    for (std::size_t state = 0; state < kCharacterStates; ++state) {
      order(inside_[state], result_.states_[state]);
    }
    TokenMask mask(static_cast<Index>(tokens.size()));
    auto at = inside_[kCharacterStart].begin();
    for (std::uint32_t points = 0; points <= kMaskedPoints; ++points) {
      for (; at != inside_[kCharacterStart].end() && at->first <= points; ++at)
        mask.allow(at->second);
      result_.start_masks_.push_back(mask);
    }
    std::vector<TokenId> tails(tails_.size() - 1);
    std::iota(tails.begin(), tails.end(), 1);
    result_.tails_ = make_token_trie(tails_, std::move(tails));
    std::ranges::sort(others_);
    others_.erase(std::unique(others_.begin(), others_.end()), others_.end());
    result_.others_ = make_token_trie(tokens, std::move(others_));
  }

 private:
  using Inside = std::vector<std::pair<std::uint32_t, TokenId>>;  // points, token

  void add_exit(std::uint8_t state, Exit exit, std::string_view bytes, std::size_t quote) {
    const std::string_view tail = bytes.substr(quote + 1);
    if (std::ranges::count(tail, '"') > 1) {
      others_.push_back(exit.id);
      return;
    }
    const auto [at, is_new] = tail_ids_.emplace(tail, static_cast<std::uint32_t>(tails_.size()));
    if (is_new) tails_.emplace_back(tail);
    exit.tail = at->second;
    exit.head = static_cast<std::uint32_t>(quote);
    result_.states_[state].exits.push_back(exit);
  }

  static void order(Inside& inside, State& state) {
    std::ranges::sort(inside);
    for (const auto& [points, id] : inside) {
      state.ends.resize(points + 1, static_cast<std::uint32_t>(state.inside.size()));
      state.inside.push_back(id);
      ++state.ends[points];
    }
  }

  StringTokens& result_;
  NextState next_;
  std::array<Inside, kCharacterStates> inside_;
  std::vector<std::string> tails_ = {""};
  std::unordered_map<std::string, std::uint32_t> tail_ids_ = {{"", 0}};
  std::vector<TokenId> others_;
};

StringTokens::StringTokens(const std::vector<std::string>& tokens, const std::vector<TokenId>& ids,
                           NextState next) {
  Builder builder(*this, next);
  for (std::uint8_t state = 0; state < kCharacterStates; ++state) {
    for (const TokenId id : ids) builder.add(state, id, tokens[static_cast<std::size_t>(id)]);
  }
  builder.finish(tokens);
}

void StringTokens::allow_inside(std::uint8_t state, std::uint32_t points, TokenMask& mask) const {
  const State& tokens = states_[state];
  if (tokens.ends.empty()) return;
  std::uint32_t begin = 0;
  const auto most = std::min(points, static_cast<std::uint32_t>(tokens.ends.size() - 1));
  if (state == kCharacterStart) {
    const std::uint32_t masked = std::min(most, kMaskedPoints);
    mask.allow_all(start_masks_[masked]);
    begin = tokens.ends[masked];
  }
  for (std::uint32_t i = begin; i < tokens.ends[most]; ++i) mask.allow(tokens.inside[i]);
}

}  // namespace hone::infer::grammar
