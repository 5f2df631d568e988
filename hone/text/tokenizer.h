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
  bool add_bos = true;  // add BOS and EOS if the tokenizer's own files say so
  bool parse_special =
      false;  // turn control tokens that are spelled out in the text into their ids
};

// A part of a text, and which tokens it may spell.
struct TextSegment {
  std::string text;
  bool allow_special = false;  // control tokens
  bool allow_added = true;     // added tokens that are no control tokens
};

struct Vocabulary;

// Converts text to token ids and back. Immutable; all methods are thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::vector<TokenId> encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;
  std::vector<TokenId> encode(std::string_view text) const { return encode(text, EncodeOptions{}); }
  // The ids of the joined text, which is split and merged as a whole. An added token is found where
  // every segment that it touches allows it; elsewhere its spelling is plain text. Adds neither BOS
  // nor EOS.
  virtual std::vector<TokenId> encode(std::span<const TextSegment> segments) const = 0;
  // The bytes of the whole sequence. Control tokens are left out unless keep_special. A dummy space
  // that the tokenizer adds in front is removed.
  virtual std::string decode(std::span<const TokenId> ids, bool keep_special = false) const = 0;
  // The bytes of this id in the middle of a text (for a byte token, one raw byte).
  virtual std::string piece_bytes(TokenId id) const = 0;
  // The token as spelled in its file ("Ġthe", "▁the", "<0x0A>").
  virtual std::string piece(TokenId id) const = 0;
  virtual bool is_control(TokenId id) const = 0;

  virtual Index vocab_size() const = 0;
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  virtual bool adds_bos() const = 0;
  virtual std::string_view kind() const = 0;  // "byte-level BPE", "SentencePiece BPE", …
  // The vocabulary it was built from, for writing it to other formats.
  virtual const Vocabulary& vocabulary() const = 0;
};

// Streams text as valid UTF-8: holds back up to 3 bytes of an incomplete code point. Bytes that
// cannot become part of one turn into U+FFFD.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);  // the text that is now complete
  std::string finish();                      // the rest; incomplete bytes become U+FFFD

 private:
  std::string held_;
};

}  // namespace hone::text
