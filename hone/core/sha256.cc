// SPDX-License-Identifier: Apache-2.0
#include "hone/core/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "hone/core/check.h"
#include "hone/core/mmap_file.h"

namespace hone {

std::string sha256_hex(std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr) != 1) {
    fail(ErrorCategory::Internal, "sha256", "libcrypto did not compute a digest.");
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned i = 0; i < length; ++i) {
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

std::string sha256_hex_of_text(std::string_view text) {
  return sha256_hex(std::as_bytes(std::span(text)));
}

std::string sha256_hex(const std::filesystem::path& path) {
  const MmapFile file(path);
  std::string hex = sha256_hex(file.bytes());
  file.check_intact();
  return hex;
}

}  // namespace hone
