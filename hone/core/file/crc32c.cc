// SPDX-License-Identifier: Apache-2.0
#include "hone/core/file/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#include "hone/core/machine/cpu_info.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hone {
namespace {

constexpr std::uint32_t kReflected = 0x82f63b78;
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// Row i advances a byte past i more bytes (M. Kounavis and F. Berry, "A systematic approach to
// building high performance software-based CRC generators", 2005: slicing by 8).
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc % 2 == 0 ? 0 : kReflected);
    tables[0][byte] = crc;
  }
  for (std::size_t row = 1; row < tables.size(); ++row) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = tables[row - 1][byte];
      tables[row][byte] = crc >> 8 ^ tables[0][crc % 256];
    }
  }
  return tables;
}
constexpr Tables kTables = make_tables();
static_assert(std::endian::native == std::endian::little);

std::uint64_t load_word(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse4(std::span<const std::byte> bytes) {
  std::uint64_t crc = ~0u;
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  for (; end - at >= 8; at += 8) crc = _mm_crc32_u64(crc, load_word(at));
  for (; at < end; ++at) {
    crc = _mm_crc32_u8(static_cast<std::uint32_t>(crc), std::to_integer<unsigned char>(*at));
  }
  return ~static_cast<std::uint32_t>(crc);
}
#endif

}  // namespace

std::uint32_t detail::crc32c_portable(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0u;
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  for (; end - at >= 8; at += 8) {
    const std::uint64_t word = load_word(at) ^ crc;
    crc = 0;
    for (int i = 0; i < 8; ++i) {
      crc ^= kTables[static_cast<std::size_t>(7 - i)][word >> (8 * i) & 255];
    }
  }
  for (; at < end; ++at) {
    crc = crc >> 8 ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(*at)) & 255];
  }
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (isa_enabled(Isa::Sse4)) return crc32c_sse4(bytes);
#endif
  return detail::crc32c_portable(bytes);
}

}  // namespace hone
