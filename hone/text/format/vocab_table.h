// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hone/core/json_io.h"
#include "hone/text/tokenizer.h"

namespace hone::text {

// Collects (piece, id) pairs of a JSON vocabulary and checks that the ids are 0 … n-1, each once.
class VocabTable {
 public:
  // `vocab` is {"piece": id, …}. Error{CorruptFile} naming `where`.
  VocabTable(const Json& vocab, std::string_view where);

  // One more piece; one that is there already must have the same id.
  TokenId add(const std::string& piece, const Json& id);
  // Pieces in the order of their ids. Error{CorruptFile} for a hole or an id used twice.
  std::vector<std::string> take_pieces();

 private:
  std::string_view where_;
  std::unordered_map<std::string, TokenId> ids_;
};

}  // namespace hone::text
