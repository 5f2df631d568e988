// SPDX-License-Identifier: Apache-2.0
#include "hone/text/turn_tokens.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "hone/text/vocabulary.h"

namespace hone::text {
namespace {

constexpr std::string_view kEnd = "<|end|>", kReturn = "<|return|>", kCall = "<|call|>";
constexpr std::array<std::string_view, 16> kEnds = {kEnd,
                                                    kReturn,
                                                    kCall,
                                                    "<|eot_id|>",
                                                    "<|eom_id|>",
                                                    "<|im_end|>",
                                                    "<end_of_turn>",
                                                    "<|endoftext|>",
                                                    "<|end_of_text|>",
                                                    "</s>",
                                                    "<EOT>",
                                                    "_<EOT>",
                                                    "[EOT]",
                                                    "[EOS]",
                                                    "<|flush|>",
                                                    "<end_of_utterance>"};

}  // namespace

std::vector<TokenId> with_bos(const Tokenizer& tokenizer, std::vector<TokenId> ids) {
  const std::optional<TokenId> bos = tokenizer.bos();
  const bool has_bos = !ids.empty() && bos && ids.front() == *bos;
  if (bos && tokenizer.adds_bos() && !has_bos) ids.insert(ids.begin(), *bos);
  return ids;
}

std::vector<TokenId> end_of_turn_ids(const Tokenizer& tokenizer) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  std::vector<TokenId> ids;
  bool has_return = false, has_call = false;
  for (std::size_t id = 0; id < vocabulary.pieces.size(); ++id) {
    const std::string& piece = vocabulary.pieces[id];
    if (vocabulary.types[id] != TokenType::Control) continue;
    if (std::ranges::find(kEnds, piece) == kEnds.end()) continue;
    ids.push_back(static_cast<TokenId>(id));
    has_return |= piece == kReturn;
    has_call |= piece == kCall;
  }
  if (has_return && has_call) {
    std::erase_if(
        ids, [&](TokenId id) { return vocabulary.pieces[static_cast<std::size_t>(id)] == kEnd; });
  }
  if (const auto eos = tokenizer.eos()) ids.push_back(*eos);
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::optional<TokenId> control_id(const Tokenizer& tokenizer, std::string_view spelled) {
  const std::array segments{TextSegment{.text = std::string(spelled), .allow_special = true}};
  const std::vector<TokenId> ids = tokenizer.encode(segments);
  const bool is_control = ids.size() == 1 && tokenizer.is_control(ids[0]);
  return is_control && tokenizer.piece(ids[0]) == spelled ? std::optional(ids[0]) : std::nullopt;
}

std::map<std::string, std::string> special_token_names(const Tokenizer& tokenizer) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  std::map<std::string, std::string> names;
  const auto add = [&](const char* name, std::optional<TokenId> id) {
    if (id) names[name] = vocabulary.pieces[static_cast<std::size_t>(*id)];
  };
  add("bos_token", vocabulary.bos);
  add("eos_token", vocabulary.eos);
  add("unk_token", vocabulary.unknown);
  add("pad_token", vocabulary.padding);
  return names;
}

}  // namespace hone::text
