// SPDX-License-Identifier: Apache-2.0
#include "hone/core/file/crc32c.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "hone/core/philox.h"

namespace hone {
namespace {

std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// RFC 3720, B.4, and the check value of the CRC catalog (CRC-32/ISCSI).
TEST(Crc32c, published_values) {
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising += static_cast<char>(i);
    falling += static_cast<char>(31 - i);
  }
  const std::string command(
      "\x01\xc0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x14\0\0\0\0\0\x04\0\0\0\0\x14\0\0\0\x18\x28\0\0\0\0\0\0"
      "\0"
      "\x02\0\0\0\0\0\0\0",
      48);
  for (const auto crc : {crc32c, detail::crc32c_portable}) {
    EXPECT_EQ(crc(bytes_of_text("")), 0u);
    EXPECT_EQ(crc(bytes_of_text("123456789")), 0xe3069283u);
    EXPECT_EQ(crc(bytes_of_text(std::string(32, '\0'))), 0x8a9136aau);
    EXPECT_EQ(crc(bytes_of_text(std::string(32, '\xff'))), 0x62a8ab43u);
    EXPECT_EQ(crc(bytes_of_text(rising)), 0x46dd794eu);
    EXPECT_EQ(crc(bytes_of_text(falling)), 0x113fdb5cu);
    EXPECT_EQ(crc(bytes_of_text(command)), 0xd9963a56u);
  }
}

TEST(Crc32c, instruction_and_tables_agree_at_every_length_and_alignment) {
  PhiloxStream random(1);
  std::vector<std::byte> data(300);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; length < 280; ++length) {
      const auto part = std::span<const std::byte>(data).subspan(begin, length);
      ASSERT_EQ(crc32c(part), detail::crc32c_portable(part)) << begin << " " << length;
    }
  }
}

}  // namespace
}  // namespace hone
