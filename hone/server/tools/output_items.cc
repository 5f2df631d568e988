// SPDX-License-Identifier: Apache-2.0
#include "hone/server/tools/output_items.h"

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/philox.h"

namespace hone::server {
namespace {

std::string call_id(std::string_view seed, std::size_t index) {
  constexpr std::string_view kCharacters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : concat(seed, "/", index)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  PhiloxStream random(hash);
  std::string id;
  for (int i = 0; i < 9; ++i) id += kCharacters[random.below(kCharacters.size())];
  return id;
}

OutputItem::Kind kind_of(const OutputPiece& piece) {
  switch (piece.kind) {
    case OutputPiece::Kind::Reasoning:
      return OutputItem::Kind::Reasoning;
    case OutputPiece::Kind::Content:
      return OutputItem::Kind::Content;
    default:
      return OutputItem::Kind::Call;
  }
}

}  // namespace

void OutputItems::push(std::string_view text, OutputListener* listener) {
  take(splitter_.push(text), listener);
}

void OutputItems::finish(OutputListener* listener) {
  take(splitter_.finish(), listener);
  const bool has_answer = std::ranges::any_of(
      items_, [](const OutputItem& item) { return item.kind != OutputItem::Kind::Reasoning; });
  if (!has_answer) open(OutputItem::Kind::Content, {}, listener);
  close(listener);
}

void OutputItems::take(const std::vector<OutputPiece>& pieces, OutputListener* listener) {
  for (const OutputPiece& piece : pieces) {
    const OutputItem::Kind kind = kind_of(piece);
    const bool begins_call = piece.kind == OutputPiece::Kind::Call;
    if (begins_call || !is_open_ || items_.back().kind != kind) {
      open(kind, begins_call ? std::string_view(piece.text) : std::string_view(), listener);
    }
    if (begins_call) continue;
    items_.back().text += piece.text;
    if (listener != nullptr) listener->on_text(items_.size() - 1, items_.back(), piece.text);
  }
}

void OutputItems::open(OutputItem::Kind kind, std::string_view name, OutputListener* listener) {
  close(listener);
  OutputItem item{.kind = kind, .id = {}, .name = std::string(name)};
  if (kind == OutputItem::Kind::Call) item.id = call_id(seed_, items_.size());
  items_.push_back(std::move(item));
  is_open_ = true;
  if (listener != nullptr) listener->on_begin(items_.size() - 1, items_.back());
}

void OutputItems::close(OutputListener* listener) {
  if (!std::exchange(is_open_, false)) return;
  if (listener != nullptr) listener->on_end(items_.size() - 1, items_.back());
}

std::string OutputItems::text_of(OutputItem::Kind kind) const {
  std::string text;
  for (const OutputItem& item : items_) {
    if (item.kind == kind) text += item.text;
  }
  return text;
}

}  // namespace hone::server
