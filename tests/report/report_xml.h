// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace hone::report::test {

// Reads one XML element. No DTD, comments or processing instructions: drawings have none.
class XmlScanner {
 public:
  explicit XmlScanner(std::string_view text) : text_(text) {}

  // "" when the text is one well-formed element (tags nest, attributes quoted and distinct, no bare
  // & or <), else what is wrong.
  std::string find_fault() {
    while (fault_.empty() && at_ < text_.size()) {
      if (text_[at_] == '<') {
        read_tag();
      } else {
        read_character();
      }
    }
    if (fault_.empty() && !open_.empty()) fault_ = "an open <" + open_.back() + ">";
    if (fault_.empty() && roots_ != 1) fault_ = "not one root";
    return fault_;
  }

 private:
  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  void read_character() {
    if (text_[at_] == '&') {
      constexpr std::string_view kKnown[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
      const bool known = std::any_of(std::begin(kKnown), std::end(kKnown), [&](auto entity) {
        return text_.substr(at_).starts_with(entity);
      });
      if (!known) fault_ = "a bare &";
    }
    ++at_;
  }

  std::string read_name() {
    const auto begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '-')) {
      ++at_;
    }
    if (at_ == begin) fault_ = "no name at " + std::string(text_.substr(begin, 40));
    return std::string(text_.substr(begin, at_ - begin));
  }

  void read_tag() {
    if (take("</")) {
      const std::string name = read_name();
      if (!take(">") || open_.empty() || open_.back() != name) {
        fault_ = "a stray </" + name + ">";
      } else {
        open_.pop_back();
      }
      return;
    }
    ++at_;
    const std::string name = read_name();
    if (open_.empty()) ++roots_;
    std::vector<std::string> attributes;
    while (fault_.empty() && take(" ")) read_attribute(attributes);
    if (take("/>")) return;
    if (!take(">") && fault_.empty()) fault_ = "a malformed <" + name + ">";
    open_.push_back(name);
  }

  void read_attribute(std::vector<std::string>& seen) {
    const std::string name = read_name();
    if (std::count(seen.begin(), seen.end(), name) > 0) fault_ = "attribute twice: " + name;
    seen.push_back(name);
    if (!take("=\"")) {
      fault_ = "attribute without a quoted value: " + name;
      return;
    }
    while (fault_.empty() && !take("\"")) {
      if (at_ == text_.size() || text_[at_] == '<') {
        fault_ = "an open value of " + name;
      } else {
        read_character();
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::string> open_;
  int roots_ = 0;
  std::string fault_;
};

inline std::string find_xml_fault(std::string_view xml) {
  while (!xml.empty() && xml.back() == '\n') xml.remove_suffix(1);
  return XmlScanner(xml).find_fault();
}

}  // namespace hone::report::test
