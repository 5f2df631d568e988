// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/gguf_vocabulary.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/names.h"
#include "hone/model_io/gguf_keys.h"
#include "hone/text/bpe/space_mark.h"
#include "hone/text/pre_tokenizer.h"

namespace hone::model_io {
namespace {

using text::TokenId;
using text::TokenizerModel;
using text::TokenType;
using text::Vocabulary;

constexpr std::string_view kModel = "tokenizer.ggml.model", kPre = "tokenizer.ggml.pre",
                           kTokens = "tokenizer.ggml.tokens", kScores = "tokenizer.ggml.scores",
                           kTypes = "tokenizer.ggml.token_type", kMerges = "tokenizer.ggml.merges",
                           kBos = "tokenizer.ggml.bos_token_id",
                           kEos = "tokenizer.ggml.eos_token_id",
                           kUnknown = "tokenizer.ggml.unknown_token_id",
                           kPadding = "tokenizer.ggml.padding_token_id",
                           kAddBos = "tokenizer.ggml.add_bos_token",
                           kAddEos = "tokenizer.ggml.add_eos_token",
                           kSpacePrefix = "tokenizer.ggml.add_space_prefix",
                           kSqueeze = "tokenizer.ggml.remove_extra_whitespaces";

void check_count(std::size_t got, std::size_t expected, std::string_view key,
                 std::string_view where) {
  if (got != expected) fail_corrupt(where, concat(expected, " values in ", key), concat(got));
}

std::optional<TokenId> read_id(const GgufFile& file, std::string_view key, std::size_t tokens,
                               std::string_view where) {
  const auto id = file.integer(key);
  // llama.cpp writes -1 for none, which older converters store as u32.
  if (!id || *id == -1 || *id == Index{0xffffffff}) return std::nullopt;
  if (*id >= 0 && *id < static_cast<Index>(tokens)) return static_cast<TokenId>(*id);
  log_warning(concat("[", where, "] ", key, " is ", *id,
                     ", but the vocabulary has no such token; it is ignored."));
  return std::nullopt;
}

std::vector<TokenType> read_types(const GgufFile& file, std::size_t tokens,
                                  std::string_view where) {
  const auto stored = file.integers(kTypes);
  std::vector<TokenType> types(tokens, TokenType::Normal);
  if (!stored) return types;
  check_count(stored->size(), tokens, kTypes, where);
  for (std::size_t i = 0; i < tokens; ++i) {
    const Index type = (*stored)[i];
    if (type < 0 || type > static_cast<Index>(TokenType::Byte))
      fail_corrupt(where, concat("token types from 0 to 6 in ", kTypes), concat(type));
    if (type > 0) types[i] = static_cast<TokenType>(type);  // 0 means undefined
  }
  return types;
}

// llama.cpp spells the user-defined pieces of SentencePiece with plain spaces.
void spell_user_defined(const std::vector<TokenType>& types, std::vector<std::string>& pieces,
                        std::string (*spell)(std::string_view)) {
  for (std::size_t id = 0; id < types.size(); ++id) {
    if (types[id] == TokenType::UserDefined) pieces[id] = spell(pieces[id]);
  }
}

void read_sentencepiece(const GgufFile& file, std::string_view where, Vocabulary& out) {
  out.model = TokenizerModel::SentencePieceBpe;
  auto scores = file.floats(kScores);
  if (!scores) fail_corrupt(where, concat("There is no key ", kScores, "."));
  check_count(scores->size(), out.pieces.size(), kScores, where);
  out.scores = std::move(*scores);
  out.add_bos = file.boolean(kAddBos).value_or(true);
  out.add_space_prefix = file.boolean(kSpacePrefix).value_or(true);
  out.remove_extra_whitespaces = file.boolean(kSqueeze).value_or(false);
  out.byte_fallback =
      std::find(out.types.begin(), out.types.end(), TokenType::Byte) != out.types.end();
  spell_user_defined(out.types, out.pieces, text::mark_spaces);
}

// The name of the splitter. Early files of some families do not have it; their special tokens tell
// them apart.
std::string_view pre_name(const GgufFile& file, const Vocabulary& vocabulary,
                          std::string_view where) {
  const std::string_view name = file.string(kPre).value_or("default");
  if (name != "default") return name;
  const auto has = [&](std::string_view piece) {
    return std::ranges::find(vocabulary.pieces, piece) != vocabulary.pieces.end();
  };
  if (has("<|begin_of_text|>") && has("<|eot_id|>")) return "llama-bpe";
  if (has("<|im_start|>") && has("<|endoftext|>") && has("<|fim_prefix|>")) return "qwen2";
  log_warning(concat("[", where, "] The file does not say how the tokenizer splits words (", kPre,
                     "): as for GPT-2. The ids may differ from those of the training."));
  return name;
}

void read_byte_level(const GgufFile& file, std::string_view where, Vocabulary& out) {
  out.model = TokenizerModel::ByteLevelBpe;
  const auto merges = file.strings(kMerges);
  if (!merges) fail_corrupt(where, concat("There is no key ", kMerges, "."));
  out.merges.reserve(merges->size());
  for (const std::string_view merge : *merges)
    out.merges.push_back(text::split_merge(merge, where));
  text::set_pre_tokenizer(out, pre_name(file, out, where), where);
  out.add_bos = file.boolean(kAddBos).value_or(out.ignore_merges);  // Llama 3 adds it
  out.add_space_prefix = file.boolean(kSpacePrefix).value_or(false);
}

struct AddedFlag {
  std::string_view key;
  bool text::AddedToken::*flag;
};
constexpr AddedFlag kAddedFlags[] = {{kHoneLstrip, &text::AddedToken::lstrip},
                                     {kHoneRstrip, &text::AddedToken::rstrip},
                                     {kHoneSingleWord, &text::AddedToken::single_word},
                                     {kHoneNormalized, &text::AddedToken::normalized}};

bool has_flag(const text::AddedToken& token) {
  return std::ranges::any_of(kAddedFlags, [&](const AddedFlag& one) { return token.*one.flag; });
}

// Phi-3's tokens take the white space behind them along, which GGUF cannot say: by the rule that
// llama.cpp has for this model.
bool is_stripped_as_phi3(std::string_view piece) {
  return piece != "<unk>" && piece != "<s>" && piece != "<|endoftext|>";
}

void read_added_flags(const GgufFile& file, Vocabulary& out) {
  // Qwen's tokenizers normalize, which GGUF does not say.
  const bool is_qwen = out.pattern == text::kQwen2Pattern;
  out.nfc = file.boolean(kHoneNfc).value_or(is_qwen);
  const bool is_phi3 = out.model == TokenizerModel::SentencePieceBpe &&
                       file.string("general.architecture").value_or("") == "phi3";
  std::vector<text::AddedToken> tokens = text::effective_added_tokens(out);
  for (const auto& [key, flag] : kAddedFlags) {
    const std::vector<Index> ids = file.integers(key).value_or(std::vector<Index>());
    const std::unordered_set<Index> listed(ids.begin(), ids.end());
    for (text::AddedToken& token : tokens) token.*flag = listed.contains(token.id);
  }
  if (is_phi3 && std::ranges::none_of(tokens, has_flag)) {
    for (text::AddedToken& token : tokens) {
      token.rstrip = is_stripped_as_phi3(out.pieces[static_cast<std::size_t>(token.id)]);
    }
  }
  // The others need no entry.
  std::ranges::copy_if(tokens, std::back_inserter(out.added_tokens), has_flag);
}

void write_added_flags(const Vocabulary& vocabulary, GgufWriter& writer) {
  if (vocabulary.nfc) writer.set_boolean(kHoneNfc, true);
  for (const auto& [key, flag] : kAddedFlags) {
    std::vector<std::int32_t> ids;
    for (const text::AddedToken& token : vocabulary.added_tokens) {
      if (token.*flag) ids.push_back(token.id);
    }
    std::ranges::sort(ids);
    if (!ids.empty()) writer.set_integers(key, ids);
  }
}

}  // namespace

bool has_gguf_vocabulary(const GgufFile& file) {
  return file.string(kModel).value_or("no_vocab") != "no_vocab";
}

Vocabulary read_gguf_vocabulary(const GgufFile& file, std::string_view where) {
  const std::string_view model = file.string(kModel).value_or("none");
  if (model != "llama" && model != "gpt2")
    fail_unsupported(where, "llama or gpt2 as tokenizer.ggml.model", quote_name(model));
  const auto tokens = file.strings(kTokens);
  if (!tokens) fail_corrupt(where, concat("There is no key ", kTokens, "."));
  if (tokens->size() > text::kMostPieces) {
    fail_corrupt(where, concat("at most ", text::kMostPieces, " tokens"), concat(tokens->size()));
  }
  Vocabulary out;
  out.pieces.assign(tokens->begin(), tokens->end());
  for (std::size_t id = 0; id < out.pieces.size(); ++id) {
    if (out.pieces[id].empty()) out.pieces[id] = concat("[EMPTY_", id, "]");  // as llama.cpp
  }
  out.types = read_types(file, out.pieces.size(), where);
  out.bos = read_id(file, kBos, out.pieces.size(), where);
  out.eos = read_id(file, kEos, out.pieces.size(), where);
  out.unknown = read_id(file, kUnknown, out.pieces.size(), where);
  out.padding = read_id(file, kPadding, out.pieces.size(), where);
  out.add_eos = file.boolean(kAddEos).value_or(false);
  if (model == "llama") {
    read_sentencepiece(file, where, out);
  } else {
    read_byte_level(file, where, out);
  }
  read_added_flags(file, out);
  out.add_bos = out.add_bos && out.bos.has_value();
  out.add_eos = out.add_eos && out.eos.has_value();
  return out;
}

void write_gguf_vocabulary(const Vocabulary& vocabulary, Index rows, GgufWriter& writer) {
  const bool sentencepiece = vocabulary.model == TokenizerModel::SentencePieceBpe;
  writer.set_string(kModel, sentencepiece ? "llama" : "gpt2");
  std::vector<std::string> pieces = vocabulary.pieces;
  std::vector<std::int32_t> types;
  for (const TokenType type : vocabulary.types) types.push_back(static_cast<std::int32_t>(type));
  while (static_cast<Index>(pieces.size()) < rows) {
    pieces.push_back(text::padding_piece(pieces.size()));
    types.push_back(static_cast<std::int32_t>(TokenType::Unused));
  }
  if (sentencepiece) {
    if (!text::scores_decide_merges(vocabulary))
      fail_unsupported(
          "gguf",
          "GGUF cannot express this vocabulary: its merges do not follow the order of scores.");
    spell_user_defined(vocabulary.types, pieces, text::unmark_spaces);
    writer.set_string(kPre, "default");
    std::vector<float> scores = vocabulary.scores;
    scores.resize(pieces.size());
    writer.set_strings(kTokens, pieces);
    writer.set_numbers(kScores, scores);
  } else {
    const auto pre = text::pre_name_for(vocabulary);
    if (!pre)
      fail_unsupported("gguf", "a splitter that tokenizer.ggml.pre has a name for",
                       quote_name(vocabulary.pattern));
    writer.set_string(kPre, *pre);
    std::vector<std::string> merges;
    for (const auto& [left, right] : vocabulary.merges) merges.push_back(left + " " + right);
    writer.set_strings(kTokens, pieces);
    writer.set_strings(kMerges, merges);
  }
  writer.set_integers(kTypes, types);
  write_added_flags(vocabulary, writer);
  if (vocabulary.unknown) writer.set_integer(kUnknown, *vocabulary.unknown);
  if (vocabulary.padding) writer.set_integer(kPadding, *vocabulary.padding);
  writer.set_boolean(kAddBos, vocabulary.add_bos);
  writer.set_boolean(kAddEos, vocabulary.add_eos);
  writer.set_boolean(kSpacePrefix, vocabulary.add_space_prefix);
  if (vocabulary.remove_extra_whitespaces) writer.set_boolean(kSqueeze, true);
}

}  // namespace hone::model_io
