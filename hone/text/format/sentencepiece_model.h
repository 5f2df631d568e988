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
  // Texts and their pieces, joined by spaces, that the file says a reader must reproduce.
  std::vector<std::pair<std::string, std::string>> self_test;
};

// SentencePiece's .model, a protobuf. Error{Unsupported} names unigram and other models that are no
// BPE, a character map, and other settings that hone does not run. BOS is added, as Llama does.
SentencePieceModel read_sentencepiece_model(std::span<const std::byte> file,
                                            std::string_view where);

// Error{CorruptFile} when a self-test text gives other pieces.
void run_self_test(const SentencePieceModel& model, const Tokenizer& tokenizer,
                   std::string_view where);

}  // namespace hone::text
