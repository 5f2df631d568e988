// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/text/tokenizer.h"

namespace hone::text {

// Collects the (piece, id) pairs of a JSON vocabulary and checks that each id has one piece.
class VocabTable {
 public:
  // `vocab` is {"piece": id, …}. Errors are Error{CorruptFile} and name `where`.
  VocabTable(const Json& vocab, std::string_view where);

  // Adds a piece. If it exists already, it must have the same id.
  TokenId add(const std::string& piece, const Json& id);
  // The pieces in the order of their ids; those of gaps are empty. Throws Error{CorruptFile} for
  // duplicate ids, and for ids far above the number of pieces.
  std::vector<std::string> take_pieces();

 private:
  std::string_view where_;
  std::unordered_map<std::string, TokenId> ids_;
};

}  // namespace hone::text
