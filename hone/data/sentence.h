// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

namespace hone::data {

// Whether the text ends with a sentence end: . ! or ? and at most one closing quote.
bool ends_sentence(std::string_view text);

// Splits `text` into pieces that join to it. Each piece begins with the blank before the sentence
// and ends with the sentence end, which is outside quotes and not followed by a lower-case word
// ("Look!" said Tom. is one sentence). The last piece may lack an end.
std::vector<std::string_view> split_sentences(std::string_view text);

}  // namespace hone::data
