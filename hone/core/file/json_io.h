// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "hone/core/index.h"

#ifdef HONE_BUILD  // compiled once, in json_io.cc; user programs may have their own JSON library
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
extern template class nlohmann::detail::serializer<nlohmann::ordered_json>;
#endif

namespace hone {

// Keeps the order in which keys were added.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  Index depth = 64;
  bool refuse_duplicate_keys = true;
};

// Parses untrusted UTF-8. Malformed text, duplicate keys and nesting beyond the limit throw
// Error{CorruptFile} that names `where`.
Json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits = {});

// Throws Error{NotFound} if the file cannot be opened.
Json read_json_file(const std::filesystem::path& path, const JsonLimits& limits = {});
void write_json_file(const std::filesystem::path& path, const Json& json);

}  // namespace hone
