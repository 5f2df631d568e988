// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hone/server/tools/output_splitter.h"

namespace hone::server {

// A part of an answer: reasoning, text, or a call of a tool.
struct OutputItem {
  enum class Kind { Reasoning, Content, Call } kind = Kind::Content;
  std::string text{};      // of a call, the arguments: JSON
  std::string id, name{};  // of a call
};

// Hears how the parts of an answer grow.
class OutputListener {
 public:
  virtual ~OutputListener() = default;
  virtual void on_begin(std::size_t index, const OutputItem& item) = 0;
  virtual void on_text(std::size_t index, const OutputItem& item, std::string_view text) = 0;
  virtual void on_end(std::size_t index, const OutputItem& item) = 0;
};

// The parts of one answer in their order.
class OutputItems {
 public:
  // Calls get ids that follow from `seed`: nine letters and digits, which all templates take.
  OutputItems(const OutputSyntax& syntax, std::string seed)
      : splitter_(syntax), seed_(std::move(seed)) {}

  // More text of the answer, and its end. `listener` may be null.
  void push(std::string_view text, OutputListener* listener);
  void finish(OutputListener* listener);

  const std::vector<OutputItem>& items() const { return items_; }
  bool has_calls() const { return splitter_.calls() > 0; }
  // Whether the answer ended with a whole call.
  bool has_whole_calls() const { return has_calls() && !splitter_.is_cut(); }
  // All text of a kind.
  std::string text_of(OutputItem::Kind kind) const;

 private:
  void take(const std::vector<OutputPiece>& pieces, OutputListener* listener);
  void open(OutputItem::Kind kind, std::string_view name, OutputListener* listener);
  void close(OutputListener* listener);

  OutputSplitter splitter_;
  const std::string seed_;
  std::vector<OutputItem> items_;
  bool is_open_ = false;
};

}  // namespace hone::server
