// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "hone/text/bpe/added_tokens.h"
#include "hone/text/vocabulary.h"

namespace hone::text {

// The parts that both kinds of tokenizers share: added tokens, BOS and EOS, and decoding. A derived
// class turns the text between added tokens into ids.
class BpeTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::vector<TokenId> encode(std::span<const TextSegment> segments) const override;
  std::string decode(std::span<const TokenId> ids, bool keep_special) const override;
  std::string piece_bytes(TokenId id) const override { return bytes_[checked(id)]; }
  std::string piece(TokenId id) const override { return vocabulary_.pieces[checked(id)]; }
  bool is_control(TokenId id) const override {
    return vocabulary_.types[checked(id)] == TokenType::Control;
  }
  Index vocab_size() const override { return static_cast<Index>(vocabulary_.pieces.size()); }
  std::optional<TokenId> bos() const override { return vocabulary_.bos; }
  std::optional<TokenId> eos() const override { return vocabulary_.eos; }
  bool adds_bos() const override { return vocabulary_.add_bos; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 protected:
  // The vocabulary must be checked. A derived constructor fills bytes_ and calls add_tokens().
  explicit BpeTokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  // The text that merging works on: `text` itself, or a result kept in `storage`. `first` says that
  // nothing precedes it.
  virtual std::string_view normalize(std::string_view text, bool first,
                                     std::string& storage) const = 0;
  // Appends the ids of normalized text without added tokens.
  virtual void encode_plain(std::string_view text, bool first, std::vector<TokenId>& ids) const = 0;
  // Whether decoding removes a space that encoding adds in front.
  virtual bool strips_dummy_space() const { return false; }

  void add_tokens(const std::vector<AddedToken>& tokens);
  std::size_t checked(TokenId id) const;

  Vocabulary vocabulary_;
  std::vector<std::string> bytes_;  // each id's contribution to a text

 private:
  // [0] without and [1] with special tokens.
  std::array<AddedTokenMatcher, 2> raw_, normalized_;
  AddedTokenMatcher spelled_;  // all of them, as they are spelled before normalization
};

// The two kinds. make_tokenizer() has checked the vocabulary.
std::shared_ptr<const Tokenizer> make_byte_level_bpe(Vocabulary vocabulary, std::string_view where);
std::shared_ptr<const Tokenizer> make_sentencepiece_bpe(Vocabulary vocabulary,
                                                        std::string_view where);

}  // namespace hone::text
