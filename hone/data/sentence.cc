// SPDX-License-Identifier: Apache-2.0
#include "hone/data/sentence.h"

#include <cctype>

namespace hone::data {

bool ends_sentence(std::string_view text) {
  if (!text.empty() && text.back() == '"') text.remove_suffix(1);
  return !text.empty() && (text.back() == '.' || text.back() == '!' || text.back() == '?');
}

std::vector<std::string_view> split_sentences(std::string_view text) {
  std::vector<std::string_view> sentences;
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted || !ends_sentence(text.substr(begin, i + 1 - begin))) continue;
    const bool at_end = i + 1 == text.size();
    const bool before_word = i + 2 < text.size() && text[i + 1] == ' ' &&
                             std::islower(static_cast<unsigned char>(text[i + 2])) == 0;
    const bool before_blank_end = i + 2 == text.size() && text[i + 1] == ' ';
    if (!at_end && !before_word && !before_blank_end) continue;
    sentences.push_back(text.substr(begin, i + 1 - begin));
    begin = i + 1;
  }
  if (begin < text.size()) sentences.push_back(text.substr(begin));
  return sentences;
}

}  // namespace hone::data
