// SPDX-License-Identifier: Apache-2.0
#include "hone/core/file/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"

namespace hone {

namespace {

void check_done(bool done) {
  if (!done) fail(ErrorCategory::Internal, "sha256", "libcrypto did not compute a digest.");
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* state) const { EVP_MD_CTX_free(state); }

Sha256::Sha256() : state_(EVP_MD_CTX_new()) {
  check_done(state_ != nullptr && EVP_DigestInit_ex(state_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::add(std::span<const std::byte> bytes) {
  check_done(EVP_DigestUpdate(state_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  check_done(EVP_DigestFinal_ex(state_.get(), digest.data(), &length) == 1);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned i = 0; i < length; ++i) {
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.hex();
}

std::string sha256_hex_of_text(std::string_view text) {
  return sha256_hex(std::as_bytes(std::span(text)));
}

std::string sha256_hex(const std::filesystem::path& path,
                       const std::function<void(Index bytes)>& on_bytes) {
  constexpr std::size_t kPart = std::size_t{16} << 20;
  const MmapFile file(path);
  Sha256 hash;
  for (std::span<const std::byte> left = file.bytes(); !left.empty();) {
    const auto part = left.first(std::min(kPart, left.size()));
    hash.add(part);
    file.drop_pages(part);
    if (on_bytes) on_bytes(std::ssize(part));
    left = left.subspan(part.size());
  }
  std::string hex = hash.hex();
  file.check_intact();
  return hex;
}

}  // namespace hone
