// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace hone::trainer {

// SHA-256 (FIPS 180-4) in lower-case hexadecimal.
std::string sha256(std::span<const std::byte> bytes);
std::string sha256(std::string_view text);

}  // namespace hone::trainer
