// SPDX-License-Identifier: Apache-2.0
#include "hone/text/bpe/pair_table.h"

#include <string>

#include "hone/core/check.h"

namespace hone::text {

PairTable index_merges(const Vocabulary& vocabulary,
                       const std::unordered_map<std::string_view, TokenId>& ids,
                       std::string_view where) {
  PairTable merges(vocabulary.merges.size());
  const auto id_of = [&](const std::string& piece) {
    const auto found = ids.find(piece);
    if (found == ids.end()) {
      fail_corrupt(where,
                   concat("The merges name \"", piece, "\", which is not in the vocabulary."));
    }
    return found->second;
  };
  std::uint32_t rank = 0;
  for (const auto& [left, right] : vocabulary.merges) {
    merges.insert(id_of(left), id_of(right), {rank++, id_of(left + right)});
  }
  return merges;
}

}  // namespace hone::text
