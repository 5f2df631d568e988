// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/text/tokenizer.h"

namespace hone::text {

enum class TokenType : std::uint8_t {  // with the numbers of SentencePiece and GGUF
  Normal = 1,
  Unknown = 2,
  Control = 3,
  UserDefined = 4,
  Unused = 5,
  Byte = 6,
};

enum class TokenizerModel { ByteLevelBpe, SentencePieceBpe };

// A token that is matched in the text itself, before splitting and merging: the leftmost first, the
// longest on ties. Its text is the piece.
struct AddedToken {
  TokenId id = 0;
  bool special = false;      // matched only under EncodeOptions::parse_special
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool single_word = false;  // matched only if no word character adjoins it
  bool normalized = false;   // matched after normalization, against its own normalized text
};

// Everything that defines a tokenizer, independent of the file format: readers produce it, writers
// consume it, and make_tokenizer() builds the tokenizer.
struct Vocabulary {
  TokenizerModel model = TokenizerModel::ByteLevelBpe;
  std::vector<std::string> pieces;  // as spelled in files ("Ġthe", "▁the", "<0x0A>")
  std::vector<TokenType> types;     // one per piece
  std::vector<float> scores;        // SentencePiece; empty for byte-level BPE
  // Best first. For SentencePiece, either empty (the pair whose union has the highest score merges)
  // or the merges of a tokenizer.json, which take precedence and from which the scores are derived.
  std::vector<std::pair<std::string, std::string>> merges;
  // The flags of tokens that are matched before splitting. Control, Unknown and UserDefined pieces
  // need no entry; see effective_added_tokens().
  std::vector<AddedToken> added_tokens;
  std::string pattern;  // PCRE2 splitter of byte-level BPE; if empty, the text is one word
  // Further splitters, each applied to the parts that the previous ones produced.
  std::vector<std::string> further_patterns;
  std::optional<TokenId> bos, eos, unknown, padding;
  bool add_bos = false, add_eos = false;
  bool add_space_prefix = false;   // SentencePiece dummy space; byte-level add_prefix_space
  bool prefix_only_first = false;  // not after each added token
  bool prefix_if_missing = false;  // SentencePiece: only if the text does not start with a space
  bool ignore_merges = false;      // Llama 3: a word that is a piece is not merged
  bool nfc = false;                // Unicode NFC before splitting
  bool byte_fallback = true;       // SentencePiece
  bool fuse_unknown = true;        // SentencePiece: a run of unknown characters is one token
  bool remove_extra_whitespaces = false;  // SentencePiece
};

// Limits on what is read from files: time and memory grow with the product of both.
inline constexpr std::size_t kMostPieces = std::size_t{1} << 22, kMostPieceBytes = 1024;

// Checks the vocabulary (sizes agree, ids are in range, pieces are distinct) and builds the
// tokenizer. `where` names the file in errors.
std::shared_ptr<const Tokenizer> make_tokenizer(Vocabulary vocabulary,
                                                std::string_view where = "tokenizer");

// added_tokens, plus an entry for each Control, Unknown or UserDefined piece that has none, by
// ascending id.
std::vector<AddedToken> effective_added_tokens(const Vocabulary& vocabulary);

// Vocabulary::merges. For a SentencePiece vocabulary without merges, the equivalent list for a
// tokenizer.json: every split of a piece into two pieces, unions with higher scores first.
std::vector<std::pair<std::string, std::string>> merges_by_score(const Vocabulary& vocabulary);

// Whether the vocabulary lists no merges, or those that follow from the scores. Only then can
// formats that hold scores (GGUF llama, tok.bin) express it.
bool scores_decide_merges(const Vocabulary& vocabulary);

// The number of pieces without those that pad the vocabulary to the rows of a model's embedding:
// unused "[PAD<id>]" at the end, as converters to GGUF write them.
std::size_t unpadded_size(const Vocabulary& vocabulary);
std::string padding_piece(std::size_t id);

// Finds the id of a piece by linear search.
std::optional<TokenId> find_piece(const Vocabulary& vocabulary, std::string_view piece);

}  // namespace hone::text
