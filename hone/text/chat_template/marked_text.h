// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hone/text/tokenizer.h"

namespace hone::text {

// Where a byte of a rendered prompt comes from, which decides what tokens it may spell.
enum class Origin : char {
  Template,   // the template itself, and what hone gives it
  Assistant,  // earlier answers of the model
  Data,       // everything else that a request contains
};

// UTF-8 text that knows the origin of each byte. Operations of templates keep the origins.
class MarkedText {
 public:
  MarkedText() = default;
  explicit MarkedText(std::string text, Origin origin = Origin::Template);

  const std::string& text() const { return text_; }
  std::size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  Origin origin(std::size_t at) const;

  void append(const MarkedText& other);
  void append(std::string_view text, Origin origin = Origin::Template);
  MarkedText substr(std::size_t begin, std::size_t count = std::string::npos) const;
  // The parts of equal origin, in order.
  std::vector<TextSegment> segments() const;

 private:
  void spell_origins();

  std::string text_;
  std::string origins_;  // one per byte; empty if all are Origin::Template
};

}  // namespace hone::text
