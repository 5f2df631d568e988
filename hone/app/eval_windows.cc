// SPDX-License-Identifier: Apache-2.0
#include "hone/app/eval_windows.h"

#include <utility>

#include "hone/core/machine/trace.h"

namespace hone::app {

text::TokenStream encode_for_eval(const text::Tokenizer& tokenizer,
                                  std::span<const std::string> documents) {
  HONE_TRACE_ZONE("tokenize", {"documents", documents.size()});
  text::TokenStream stream;
  for (const std::string& document : documents) {
    stream.add_document(tokenizer.encode(document, {.add_bos = false}));
  }
  return stream;
}

std::optional<text::TokenId> window_start(const text::Tokenizer& tokenizer) {
  return tokenizer.adds_bos() ? tokenizer.bos() : std::nullopt;
}

std::vector<EvalWindow> make_eval_windows(const text::TokenStream& stream, Index length,
                                          std::optional<text::TokenId> start) {
  std::vector<EvalWindow> windows;
  for (const auto& range : text::cut_windows(stream.ends, start ? length - 1 : length, !start)) {
    EvalWindow cut{.tokens = {}, .first_target = start ? range.begin : range.begin + 1};
    cut.tokens.reserve(static_cast<std::size_t>(range.length() + 1));
    if (start) cut.tokens.push_back(*start);
    cut.tokens.insert(cut.tokens.end(), stream.ids.begin() + range.begin,
                      stream.ids.begin() + range.end);
    if (cut.tokens.size() >= 2) windows.push_back(std::move(cut));
  }
  return windows;
}

}  // namespace hone::app
