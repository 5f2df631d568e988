// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/prefix_key.h"

#include <gtest/gtest.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>

#include <cstring>
#include <memory>
#include <vector>

#include "hone/core/philox.h"

namespace hone::infer {
namespace {

// SipHash as OpenSSL computes it; its result has 128 bits unless asked otherwise.
PrefixKey openssl_siphash(const PrefixSecret& secret, const std::vector<std::uint64_t>& words) {
  const std::unique_ptr<EVP_MAC, void (*)(EVP_MAC*)> mac(EVP_MAC_fetch(nullptr, "SIPHASH", nullptr),
                                                         EVP_MAC_free);
  const std::unique_ptr<EVP_MAC_CTX, void (*)(EVP_MAC_CTX*)> context(EVP_MAC_CTX_new(mac.get()),
                                                                     EVP_MAC_CTX_free);
  PrefixKey key{};
  std::size_t size = 0;
  EXPECT_EQ(EVP_MAC_init(context.get(), reinterpret_cast<const unsigned char*>(secret.data()),
                         sizeof secret, nullptr),
            1);
  EXPECT_EQ(EVP_MAC_update(context.get(), reinterpret_cast<const unsigned char*>(words.data()),
                           words.size() * 8),
            1);
  EXPECT_EQ(
      EVP_MAC_final(context.get(), reinterpret_cast<unsigned char*>(key.data()), &size, sizeof key),
      1);
  EXPECT_EQ(size, sizeof key);
  return key;
}

TEST(PrefixKey, siphash_equals_openssl) {
  PhiloxStream random(3);
  const auto word = [&] { return std::uint64_t{random()} << 32 | random(); };
  for (std::size_t size = 0; size < 40; ++size) {
    const PrefixSecret secret{word(), word()};
    std::vector<std::uint64_t> words(size);
    for (std::uint64_t& w : words) w = word();
    EXPECT_EQ(siphash128(secret, words), openssl_siphash(secret, words)) << size;
  }
}

// The first vector of the reference implementation: key 00 01 … 0f, no input.
TEST(PrefixKey, siphash_gives_the_published_vector) {
  const PrefixSecret secret{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  const unsigned char expected[] = {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
                                    0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93};
  const PrefixKey key = siphash128(secret, {});
  EXPECT_EQ(std::memcmp(key.data(), expected, sizeof expected), 0);
}

TEST(PrefixKey, every_part_of_a_prefix_changes_the_key) {
  const PrefixSecret secret{1, 2};
  std::vector<TokenId> ids(32, 5);
  const PrefixKey root = root_key(secret, 7);
  const PrefixKey key = extend_key(secret, root, ids);
  EXPECT_NE(root, root_key(secret, 8));
  EXPECT_NE(key, extend_key(secret, root_key(secret, 8), ids));
  EXPECT_NE(key, extend_key({1, 3}, root, ids));
  for (TokenId& id : ids) {
    ++id;
    EXPECT_NE(key, extend_key(secret, root, ids));
    --id;
  }
  EXPECT_EQ(key, extend_key(secret, root, ids));
}

}  // namespace
}  // namespace hone::infer
