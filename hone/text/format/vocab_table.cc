// SPDX-License-Identifier: Apache-2.0
#include "hone/text/format/vocab_table.h"

#include <algorithm>
#include <limits>

#include "hone/text/format/json_field.h"

namespace hone::text {
namespace {

constexpr std::size_t kMostGaps = 65536;  // beside as many as there are pieces

}  // namespace

VocabTable::VocabTable(const Json& vocab, std::string_view where) : where_(where) {
  if (!vocab.is_object()) fail_corrupt(where, "a vocabulary {piece: id}", vocab.type_name());
  ids_.reserve(vocab.size());
  for (const auto& [piece, id] : vocab.items()) add(piece, id);
}

TokenId VocabTable::add(const std::string& piece, const Json& id) {
  const bool fits = id.is_number_integer() && id >= 0 && id <= std::numeric_limits<TokenId>::max();
  if (!fits || piece.empty()) {
    fail_corrupt(where_, "pieces with ids from 0 to 2^31-1",
                 concat("\"", piece.substr(0, 80), "\": ", JsonField::text(id)));
  }
  const auto value = id.get<TokenId>();
  const auto [found, fresh] = ids_.emplace(piece, value);
  if (!fresh && found->second != value) {
    fail_corrupt(where_, concat("\"", piece.substr(0, 80), "\" has two ids, ", found->second,
                                " and ", value, "."));
  }
  return value;
}

std::vector<std::string> VocabTable::take_pieces() {
  std::size_t size = ids_.size();
  for (const auto& [piece, id] : ids_) size = std::max(size, static_cast<std::size_t>(id) + 1);
  if (size > 2 * ids_.size() + kMostGaps) {
    fail_corrupt(where_, concat("token ids below ", 2 * ids_.size() + kMostGaps),
                 concat("id ", size - 1));
  }
  std::vector<std::string> pieces(size);
  for (const auto& [piece, id] : ids_) {
    if (!pieces[id].empty()) {
      fail_corrupt(where_, concat("Token id ", id, " has two pieces."));
    }
    pieces[id] = piece;
  }
  return pieces;
}

}  // namespace hone::text
