// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/core/index.h"
#include "hone/text/tokenizer.h"

namespace hone::text {

// Documents, one after another.
struct TokenStream {
  std::vector<TokenId> ids;
  std::vector<Index> ends;  // of each document, ascending

  void add_document(std::span<const TokenId> tokens);
  // Keeps the first `tokens` tokens.
  void cut(Index tokens);
};

// Models are evaluated on windows of their context, but of no more tokens than these unless another
// length is asked for.
inline constexpr Index kEvalWindow = 1024;

struct TokenRange {
  Index begin = 0, end = 0;
  Index length() const { return end - begin; }
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// The windows that language models are trained and evaluated on: ranges of at most `length` tokens
// that do not overlap and do not cross into the next document. With `lead`, a document's first
// range begins one token early, at the last token of the previous document, so that the document's
// first token can be predicted as well. Empty ranges are left out.
std::vector<TokenRange> cut_windows(std::span<const Index> ends, Index length, bool lead);

}  // namespace hone::text
