// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// Base64 of RFC 4648 (section 4), with padding.
std::string to_base64(std::span<const std::byte> bytes);
// The bytes of such a text, whose padding may be absent; nullopt for anything else.
std::optional<std::vector<std::byte>> from_base64(std::string_view text);

}  // namespace hone
