// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hone/server/api/fields.h"
#include "hone/server/api/text_service.h"

namespace hone::server {

struct Prompts {
  std::vector<std::vector<infer::TokenId>> ids;
  std::vector<std::string> texts;
};

// Reads a text, token ids, or up to `most` of either. Each has at least one token and fits into the
// context. Throws ApiError that names the field.
Prompts read_prompts(Fields& fields, std::string_view name, const TextService& service,
                     std::size_t most);

}  // namespace hone::server
