// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/text/vocabulary.h"

namespace hone::text {

struct SentencePieceModel {
  Vocabulary vocabulary;
  // Texts and their pieces, joined by spaces, that the file requires a reader to reproduce.
  std::vector<std::pair<std::string, std::string>> self_test;
};

// Reads SentencePiece's .model, a protobuf. Models other than BPE (such as unigram), character maps
// and other settings that hone does not support throw Error{Unsupported} that names them. Encoding
// adds BOS, as Llama does.
SentencePieceModel read_sentencepiece_model(std::span<const std::byte> file,
                                            std::string_view where);

// Throws Error{CorruptFile} if a text of the self-test yields other pieces.
void run_self_test(const SentencePieceModel& model, const Tokenizer& tokenizer,
                   std::string_view where);

}  // namespace hone::text
