// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hone/text/token_stream.h"

namespace hone::app {

// The tokens of one window. All but the first are predicted.
struct EvalWindow {
  std::vector<text::TokenId> tokens;
  Index first_target = 0;  // the position of tokens[1] in the stream
};

// Encodes documents as tokens without BOS.
text::TokenStream encode_for_eval(const text::Tokenizer& tokenizer,
                                  std::span<const std::string> documents);

// The token that every window begins with, if the tokenizer adds one to texts.
std::optional<text::TokenId> window_start(const text::Tokenizer& tokenizer);

// Returns windows of at most `length` >= 2 tokens, including `start`. They do not overlap and do
// not cross into the next document. Without a start, the first window of a document begins with the
// last token of the previous one, as in training. Windows with nothing to predict are left out.
std::vector<EvalWindow> make_eval_windows(const text::TokenStream& stream, Index length,
                                          std::optional<text::TokenId> start);

}  // namespace hone::app
