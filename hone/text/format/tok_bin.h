// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "hone/text/vocabulary.h"

namespace hone::text {

// llama2.c's tok.bin: the i32 length of the longest piece, then per token an f32 score, an i32
// length and the bytes. Token 0 is unknown, 1 BOS, 2 EOS and 3–258 the bytes. "▁" is spelled as a
// space, BOS and EOS as "\n<s>\n" and "\n</s>\n". Encoding adds BOS.
Vocabulary read_tok_bin(std::span<const std::byte> file, std::string_view where);

// Whether these bytes, from first to last, have the form of a tok.bin.
bool looks_like_tok_bin(std::span<const std::byte> file);

// Throws Error{Unsupported} if the vocabulary has no scores, does not start with those 259 tokens,
// or merges in an order that scores cannot express.
std::string write_tok_bin(const Vocabulary& vocabulary);

}  // namespace hone::text
