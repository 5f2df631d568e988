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

// The content of a gzip file of at most `max_bytes`. Memory grows with the actual content, not with
// what a header claims. Throws Error{CorruptFile} that names `where` if the data is damaged, cut
// short or longer than that.
std::vector<std::uint8_t> unpack_gzip(std::span<const std::byte> file, std::string_view where,
                                      Index max_bytes);

// The content of a file, unpacked if it is gzip.
std::vector<std::uint8_t> read_plain_or_gzip(const std::filesystem::path& path, Index max_bytes);
// The first `count` bytes of that content, or all of it if it is shorter.
std::vector<std::uint8_t> read_begin(const std::filesystem::path& path, Index count);

}  // namespace hone::data
