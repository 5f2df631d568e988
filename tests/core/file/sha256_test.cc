// SPDX-License-Identifier: Apache-2.0
#include "hone/core/file/sha256.h"

#include <gtest/gtest.h>

#include <string>

#include "hone/core/file/file_io.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

// FIPS 180-4 examples.
TEST(Sha256, matches_published_digests) {
  EXPECT_EQ(sha256_hex_of_text("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex_of_text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex_of_text(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  const test::TemporaryFolder folder;
  write_text_file(folder.path() / "empty", "");
  EXPECT_EQ(sha256_hex(folder.path() / "empty"),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256, takes_bytes_in_pieces) {
  Sha256 hash;
  for (const std::string_view piece : {"a", "", "bc"}) hash.add(std::as_bytes(std::span(piece)));
  EXPECT_EQ(hash.hex(), sha256_hex_of_text("abc"));
}

TEST(Sha256, of_a_large_file_tells_of_every_part) {
  const test::TemporaryFolder folder;
  std::string text((std::size_t{20} << 20) + 3, 'a');
  text.back() = 'b';
  write_text_file(folder.path() / "large", text);
  Index told = 0, parts = 0;
  const std::string digest = sha256_hex(folder.path() / "large", [&](Index bytes) {
    told += bytes;
    ++parts;
  });
  EXPECT_EQ(digest, sha256_hex_of_text(text));
  EXPECT_EQ(told, std::ssize(text));
  EXPECT_GE(parts, 2);
}

}  // namespace
}  // namespace hone
