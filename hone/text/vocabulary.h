// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/text/tokenizer.h"

namespace hone::text {

enum class TokenType : std::uint8_t {  // SentencePiece's and GGUF's numbers
  Normal = 1,
  Unknown = 2,
  Control = 3,
  UserDefined = 4,
  Unused = 5,
  Byte = 6,
};

enum class TokenizerModel { ByteLevelBpe, SentencePieceBpe };

// A token that is looked for in the text itself, before splitting and merging: leftmost first, the
// longest on ties. Its text is the piece.
struct AddedToken {
  TokenId id = 0;
  bool special = false;      // matched only under EncodeOptions::parse_special
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
  bool single_word = false;  // only between characters that are no word characters
  bool normalized = false;   // matched after normalization, against its own normalized text
};

// Everything that defines a tokenizer, independent of the file it came from: readers produce it,
// writers consume it, make_tokenizer() runs it.
struct Vocabulary {
  TokenizerModel model = TokenizerModel::ByteLevelBpe;
  std::vector<std::string> pieces;  // as spelled in files ("Ġthe", "▁the", "<0x0A>")
  std::vector<TokenType> types;     // one per piece
  std::vector<float> scores;        // SentencePiece; empty for byte-level BPE
  // Best first. SentencePiece: empty (the pair whose union scores highest is merged), or the merges
  // of a tokenizer.json, which then decide; scores follow them.
  std::vector<std::pair<std::string, std::string>> merges;
  // Flags of tokens matched before splitting. Those that only `types` names (Control, Unknown,
  // UserDefined) need no entry: effective_added_tokens().
  std::vector<AddedToken> added_tokens;
  std::string pattern;  // PCRE2 splitter of byte-level BPE; empty: the text is one word
  // Further splitters, each applied to every part that the ones before it left.
  std::vector<std::string> further_patterns;
  std::optional<TokenId> bos, eos, unknown, padding;
  bool add_bos = false, add_eos = false;
  bool add_space_prefix = false;          // SentencePiece dummy space; byte-level add_prefix_space
  bool prefix_only_first = false;         // not again after each added token
  bool prefix_if_missing = false;         // SentencePiece: not where the text starts with a space
  bool ignore_merges = false;             // Llama-3: a whole known piece is taken first
  bool nfc = false;                       // Unicode NFC before splitting
  bool byte_fallback = true;              // SentencePiece
  bool fuse_unknown = true;               // SentencePiece: a run of unknown characters is one token
  bool remove_extra_whitespaces = false;  // SentencePiece
};

// Checks the vocabulary (sizes agree, ids in range, no piece twice) and builds the tokenizer.
// `where` names the file in errors.
std::shared_ptr<const Tokenizer> make_tokenizer(Vocabulary vocabulary,
                                                std::string_view where = "tokenizer");

// added_tokens, and one entry for each Control, Unknown or UserDefined piece that it leaves out;
// ascending ids.
std::vector<AddedToken> effective_added_tokens(const Vocabulary& vocabulary);

// Vocabulary::merges, or for a SentencePiece vocabulary without them what a tokenizer.json needs in
// their place: every split of a piece into two known pieces, unions of higher score first.
std::vector<std::pair<std::string, std::string>> merges_by_score(const Vocabulary& vocabulary);

// Do the scores alone give the merges that the vocabulary lists (or does it list none)? Only then
// can a format that holds scores (GGUF llama, tok.bin) express it.
bool scores_decide_merges(const Vocabulary& vocabulary);

// Id of a piece as spelled; a linear search.
std::optional<TokenId> find_piece(const Vocabulary& vocabulary, std::string_view piece);

}  // namespace hone::text
