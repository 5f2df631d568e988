// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "hone/core/index.h"

namespace hone::data {

bool is_gzip(std::span<const std::byte> file);

// The content of a gzip file, at most `most` bytes of it. Memory grows with what is there, never
// with what a header promises. `where` names the file in Error{CorruptFile}: damaged, cut short, or
// longer than `most`.
std::vector<std::uint8_t> unpack_gzip(std::span<const std::byte> file, std::string_view where,
                                      Index most);

// A file's content, unpacked if it is gzip.
std::vector<std::uint8_t> read_plain_or_gzip(const std::filesystem::path& path, Index most);
// Its first `count` bytes, or what there is.
std::vector<std::uint8_t> read_begin(const std::filesystem::path& path, Index count);

}  // namespace hone::data
