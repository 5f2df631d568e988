// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "hone/core/index.h"

struct evp_md_ctx_st;  // of libcrypto

namespace hone {

// SHA-256 of bytes that come in pieces.
class Sha256 {
 public:
  Sha256();
  void add(std::span<const std::byte> bytes);
  // Returns the digest as sha256_hex() does. No bytes may be added afterwards.
  std::string hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* state) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> state_;
};

// SHA-256 as 64 lower-case hexadecimal digits, as sha256sum prints it.
std::string sha256_hex(std::span<const std::byte> bytes);
std::string sha256_hex_of_text(std::string_view text);
// Returns the SHA-256 of a file's content. Throws like MmapFile and MmapFile::check_intact(). Calls
// `on_bytes`, if not empty, after each part with its number of bytes.
std::string sha256_hex(const std::filesystem::path& path,
                       const std::function<void(Index bytes)>& on_bytes = {});

}  // namespace hone
