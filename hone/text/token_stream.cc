// SPDX-License-Identifier: Apache-2.0
#include "hone/text/token_stream.h"

#include <algorithm>

#include "hone/core/check.h"

namespace hone::text {

void TokenStream::add_document(std::span<const TokenId> tokens) {
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  ends.push_back(static_cast<Index>(ids.size()));
}

void TokenStream::cut(Index tokens) {
  if (static_cast<Index>(ids.size()) <= tokens) return;
  ids.resize(static_cast<std::size_t>(tokens));
  for (Index& end : ends) end = std::min(end, tokens);
}

std::vector<TokenRange> cut_windows(std::span<const Index> ends, Index length, bool lead) {
  HONE_CHECK(length >= 1, "cut_windows", "windows of at least 1 token", length);
  std::vector<TokenRange> windows;
  Index begin = 0;
  for (const Index end : ends) {
    if (end == begin) continue;
    for (Index at = lead && begin > 0 ? begin - 1 : begin; at < end; at += length) {
      windows.push_back({at, std::min(end, at + length)});
    }
    begin = end;
  }
  return windows;
}

}  // namespace hone::text
