// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "hone/text/bpe/added_tokens.h"
#include "hone/text/vocabulary.h"

namespace hone::text {

// What both kinds of tokenizer share: added tokens, BOS and EOS, decoding. A derived class turns
// the stretches between added tokens into ids.
class BpeTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
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
  // The vocabulary has been checked. A derived constructor fills bytes_ and calls add_tokens().
  explicit BpeTokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  // Text as the merges see it; may return `text` itself or keep the result in `storage`. `first`:
  // nothing stands before it.
  virtual std::string_view normalize(std::string_view text, bool first,
                                     std::string& storage) const = 0;
  // Appends the ids of a normalized stretch without added tokens.
  virtual void encode_plain(std::string_view text, bool first, std::vector<TokenId>& ids) const = 0;
  // The space that encoding put in front and decoding takes away.
  virtual bool strips_dummy_space() const { return false; }

  void add_tokens(const std::vector<AddedToken>& tokens);
  std::size_t checked(TokenId id) const;

  Vocabulary vocabulary_;
  std::vector<std::string> bytes_;  // what each id adds to a text

 private:
  // [0]: without, [1]: with special tokens.
  std::array<AddedTokenMatcher, 2> raw_, normalized_;
};

// Derived kinds; the vocabulary has been checked by make_tokenizer().
std::shared_ptr<const Tokenizer> make_byte_level_bpe(Vocabulary vocabulary, std::string_view where);
std::shared_ptr<const Tokenizer> make_sentencepiece_bpe(Vocabulary vocabulary,
                                                        std::string_view where);

}  // namespace hone::text
