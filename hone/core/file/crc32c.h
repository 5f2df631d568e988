// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hone {

// CRC-32C: the checksum of RFC 3720, polynomial 0x1edc6f41 (Castagnoli), reflected.
std::uint32_t crc32c(std::span<const std::byte> bytes);

namespace detail {
// Uses tables. crc32c() uses the processor's CRC instruction where there is one.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes);
}  // namespace detail

}  // namespace hone
