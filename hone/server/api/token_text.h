// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/file/json_io.h"
#include "hone/text/tokenizer.h"

namespace hone::server {

// The bytes of a token in a text; control tokens as they are spelled, and rows of the embedding
// without a piece as "<|id|>".
std::string token_bytes(const text::Tokenizer& tokenizer, text::TokenId id);
// The same as valid UTF-8: other bytes become "\\xhh".
std::string token_text(const text::Tokenizer& tokenizer, text::TokenId id);
// {"token", "logprob", "bytes"}
Json token_json(const text::Tokenizer& tokenizer, text::TokenId id, double logprob);

}  // namespace hone::server
