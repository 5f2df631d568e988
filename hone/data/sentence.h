// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

namespace hone::data {

// Does a text that stops here stop at a sentence end: . ! or ? and at most one closing quote?
bool ends_sentence(std::string_view text);

// Pieces that join to `text`: each ends with its sentence end and begins with the blank before it.
// A sentence ends outside quotes, where no lower-case word follows ("Look!" said Tom. is one
// sentence). The last piece may lack an end.
std::vector<std::string_view> split_sentences(std::string_view text);

}  // namespace hone::data
