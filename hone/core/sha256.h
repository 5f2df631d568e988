// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace hone {

// SHA-256 as 64 lower-case hexadecimal digits, as sha256sum prints it.
std::string sha256_hex(std::span<const std::byte> bytes);
std::string sha256_hex_of_text(std::string_view text);
// The same of a file's content; throws as MmapFile and MmapFile::check_intact() do.
std::string sha256_hex(const std::filesystem::path& path);

}  // namespace hone
