// SPDX-License-Identifier: Apache-2.0
#include "hone/text/chat_template/marked_text.h"

#include <utility>

#include "hone/text/chat_template/work_limit.h"

namespace hone::text {

MarkedText::MarkedText(std::string text, Origin origin) : text_(std::move(text)) {
  if (origin != Origin::Template) origins_.assign(text_.size(), static_cast<char>(origin));
}

Origin MarkedText::origin(std::size_t at) const {
  return origins_.empty() ? Origin::Template : static_cast<Origin>(origins_[at]);
}

void MarkedText::spell_origins() {
  if (origins_.empty()) origins_.assign(text_.size(), static_cast<char>(Origin::Template));
}

void MarkedText::append(const MarkedText& other) {
  WorkLimit::spend(other.size());
  if (!origins_.empty() || !other.origins_.empty()) {
    spell_origins();
    if (other.origins_.empty()) {
      origins_.append(other.size(), static_cast<char>(Origin::Template));
    } else {
      origins_ += other.origins_;
    }
  }
  text_ += other.text_;
}

void MarkedText::append(std::string_view text, Origin origin) {
  WorkLimit::spend(text.size());
  if (!origins_.empty() || origin != Origin::Template) {
    spell_origins();
    origins_.append(text.size(), static_cast<char>(origin));
  }
  text_ += text;
}

MarkedText MarkedText::substr(std::size_t begin, std::size_t count) const {
  MarkedText part;
  part.text_ = text_.substr(begin, count);
  WorkLimit::spend(part.size());
  if (!origins_.empty()) part.origins_ = origins_.substr(begin, count);
  return part;
}

std::vector<TextSegment> MarkedText::segments() const {
  std::vector<TextSegment> out;
  for (std::size_t begin = 0, end = 0; begin < size(); begin = end) {
    const Origin from = origin(begin);
    end = origins_.empty() ? size() : origins_.find_first_not_of(origins_[begin], begin);
    if (end == std::string::npos) end = size();
    out.push_back({.text = text_.substr(begin, end - begin),
                   .allow_special = from == Origin::Template,
                   .allow_added = from != Origin::Data});
  }
  return out;
}

}  // namespace hone::text
