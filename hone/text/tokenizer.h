// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"

namespace hone::text {

using TokenId = std::int32_t;

struct EncodeOptions {
  bool add_bos = true;         // BOS (and EOS) where the tokenizer's own files add them
  bool parse_special = false;  // control tokens written out in the text become their ids
};

// Text to token ids and back. Immutable after loading; every method may be called from any thread.
struct Vocabulary;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::vector<TokenId> encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;
  std::vector<TokenId> encode(std::string_view text) const { return encode(text, EncodeOptions{}); }
  // Bytes of the whole sequence; control tokens are left out unless keep_special. A dummy space in
  // front, which some tokenizers add, is removed once.
  virtual std::string decode(std::span<const TokenId> ids, bool keep_special = false) const = 0;
  // Bytes that this id adds to a text in the middle (a byte token: one raw byte).
  virtual std::string piece_bytes(TokenId id) const = 0;
  // The token as its file spells it ("Ġthe", "▁the", "<0x0A>").
  virtual std::string piece(TokenId id) const = 0;
  virtual bool is_control(TokenId id) const = 0;

  virtual Index vocab_size() const = 0;
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  virtual bool adds_bos() const = 0;
  virtual std::string_view kind() const = 0;  // "byte-level BPE", "SentencePiece BPE", …
  // What this tokenizer was built from (vocabulary.h), for writing it to other formats.
  virtual const Vocabulary& vocabulary() const = 0;
};

// Holds back at most 3 bytes of an incomplete UTF-8 code point while text streams out. Bytes that
// can never complete come out as U+FFFD.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);  // text that is complete now
  std::string finish();                      // what is left; incomplete bytes become U+FFFD

 private:
  std::string held_;
};

}  // namespace hone::text
