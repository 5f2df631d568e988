// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hone/text/token_stream.h"

namespace hone::app {

// Tokens, of which all but the first are predicted.
struct EvalWindow {
  std::vector<text::TokenId> tokens;
  Index first_target = 0;  // the position of tokens[1] in the stream
};

// Documents as tokens without BOS.
text::TokenStream encode_for_eval(const text::Tokenizer& tokenizer,
                                  std::span<const std::string> documents);

// The token that every window begins with, if the tokenizer adds one to texts.
std::optional<text::TokenId> window_start(const text::Tokenizer& tokenizer);

// Windows of at most `length` >= 2 tokens, including `start`, that do not overlap and do not cross
// into the next document. Without a start, a document's first window begins with the last token of
// the previous document, as in training. Windows with nothing to predict are left out.
std::vector<EvalWindow> make_eval_windows(const text::TokenStream& stream, Index length,
                                          std::optional<text::TokenId> start);

}  // namespace hone::app
