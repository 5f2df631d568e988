// SPDX-License-Identifier: Apache-2.0
#include <unordered_map>
#include <unordered_set>

#include "hone/core/check.h"
#include "hone/text/bpe/bpe_tokenizer.h"
#include "hone/text/bpe/byte_alphabet.h"
#include "hone/text/bpe/merge.h"
#include "hone/text/bpe/pair_table.h"
#include "hone/text/unicode/nfc.h"
#include "hone/text/unicode/splitter.h"

namespace hone::text {
namespace {

constexpr std::size_t kMaxWord = std::size_t{1} << 30;  // symbol numbers have 32 bits

// GPT-2's scheme: a pattern splits the text into words, and the bytes of each word merge, lowest
// rank first.
class ByteLevelBpe final : public BpeTokenizer {
 public:
  ByteLevelBpe(Vocabulary vocabulary, std::string_view where);
  std::string_view kind() const override { return "byte-level BPE"; }

 private:
  struct Scratch {
    std::vector<Symbol> symbols;
    CandidateQueue queue;
  };

  void index_pieces(std::string_view where);
  std::string_view normalize(std::string_view text, bool first,
                             std::string& storage) const override;
  void encode_plain(std::string_view text, bool first, std::vector<TokenId>& ids) const override;
  void split_word(std::string_view text, std::size_t splitter, Scratch& scratch,
                  std::vector<TokenId>& ids) const;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& ids) const;
  TokenId byte_id(char byte) const;

  std::array<TokenId, 256> byte_ids_{};
  TokenId unknown_id_ = kNoToken;
  PairTable merges_;
  std::unordered_map<std::string, TokenId> whole_words_;  // only with ignore_merges
  std::vector<Splitter> splitters_;
};

ByteLevelBpe::ByteLevelBpe(Vocabulary vocabulary, std::string_view where)
    : BpeTokenizer(std::move(vocabulary)) {
  if (!vocabulary_.pattern.empty()) splitters_.emplace_back(vocabulary_.pattern, where);
  for (const std::string& pattern : vocabulary_.further_patterns) {
    splitters_.emplace_back(pattern, where);
  }
  index_pieces(where);
  // One of another type is only what a configuration names.
  const auto& unknown = vocabulary_.unknown;
  if (unknown && vocabulary_.types[static_cast<std::size_t>(*unknown)] == TokenType::Unknown) {
    unknown_id_ = *unknown;
  }
  add_tokens(effective_added_tokens(vocabulary_));
}

void ByteLevelBpe::index_pieces(std::string_view where) {
  std::unordered_set<TokenId> added;
  for (const AddedToken& token : effective_added_tokens(vocabulary_)) added.insert(token.id);
  std::unordered_map<std::string_view, TokenId> ids;
  byte_ids_.fill(kNoToken);
  bytes_.reserve(vocabulary_.pieces.size());
  for (const std::string& piece : vocabulary_.pieces) {
    const auto id = static_cast<TokenId>(bytes_.size());
    ids.emplace(piece, id);
    std::optional<std::string> bytes;
    if (!added.contains(id)) bytes = unspell_bytes(piece);
    if (bytes && bytes->size() == 1) byte_ids_[static_cast<std::uint8_t>((*bytes)[0])] = id;
    if (bytes && vocabulary_.ignore_merges) whole_words_.emplace(*bytes, id);
    bytes_.push_back(bytes ? std::move(*bytes) : piece);
  }
  merges_ = index_merges(vocabulary_, ids, where);
}

std::string_view ByteLevelBpe::normalize(std::string_view text, bool /*first*/,
                                         std::string& storage) const {
  if (!vocabulary_.nfc) return text;
  storage = to_nfc(text);
  return storage;
}

void ByteLevelBpe::encode_plain(std::string_view text, bool /*first*/,
                                std::vector<TokenId>& ids) const {
  Scratch scratch;
  if (vocabulary_.add_space_prefix && !text.starts_with(' ')) {
    return split_word(concat(" ", text), 0, scratch, ids);
  }
  split_word(text, 0, scratch, ids);
}

void ByteLevelBpe::split_word(std::string_view text, std::size_t splitter, Scratch& scratch,
                              std::vector<TokenId>& ids) const {
  if (splitter == splitters_.size()) return encode_word(text, scratch, ids);
  splitters_[splitter].split(
      text, [&](std::string_view part) { split_word(part, splitter + 1, scratch, ids); });
}

// kNoToken: the byte is left out, as Hugging Face's tokenizers do without an unk_token. Some
// vocabularies lack bytes that hardly occur.
TokenId ByteLevelBpe::byte_id(char byte) const {
  const TokenId id = byte_ids_[static_cast<std::uint8_t>(byte)];
  return id == kNoToken ? unknown_id_ : id;
}

void ByteLevelBpe::encode_word(std::string_view word, Scratch& scratch,
                               std::vector<TokenId>& ids) const {
  if (vocabulary_.ignore_merges) {
    const auto whole = whole_words_.find(std::string(word));
    if (whole != whole_words_.end()) return ids.push_back(whole->second);
  }
  HONE_CHECK(word.size() <= kMaxWord, "tokenizer", "a word of at most 1 GiB", word.size());
  scratch.symbols.clear();
  for (std::uint32_t i = 0; i < word.size(); ++i) {
    if (const TokenId id = byte_id(word[i]); id != kNoToken) {
      scratch.symbols.push_back({0, 0, i, 1, id});
    }
  }
  if (scratch.symbols.size() == 1) return ids.push_back(scratch.symbols[0].id);
  if (scratch.symbols.empty()) return;
  link_symbols(scratch.symbols);
  merge_symbols(
      scratch.symbols, scratch.queue,
      [this](const Symbol& left, const Symbol& right, Merge& merge) {
        const Merge* found = merges_.find(left.id, right.id);
        if (found != nullptr) merge = *found;
        return found != nullptr;
      },
      [](const Symbol&, const Symbol&, TokenId) {});
  for (std::int32_t i = 0; i >= 0; i = scratch.symbols[i].next) {
    ids.push_back(scratch.symbols[i].id);
  }
}

}  // namespace

std::shared_ptr<const Tokenizer> make_byte_level_bpe(Vocabulary vocabulary,
                                                     std::string_view where) {
  return std::make_shared<ByteLevelBpe>(std::move(vocabulary), where);
}

}  // namespace hone::text
