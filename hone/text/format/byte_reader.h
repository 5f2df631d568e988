// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "hone/core/check.h"

namespace hone::text {

// Reads untrusted bytes and checks every read against the remaining bytes.
class ByteReader {
 public:
  ByteReader(std::string_view bytes, std::string_view where) : rest_(bytes), where_(where) {}
  ByteReader(std::span<const std::byte> bytes, std::string_view where)
      : ByteReader(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                   where) {}

  bool at_end() const { return rest_.empty(); }

  std::string_view take(std::uint64_t count, std::string_view what) {
    if (count > rest_.size()) {
      fail_corrupt(where_, concat(count, " bytes for ", what), concat(rest_.size(), " remaining"));
    }
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(count));
    rest_.remove_prefix(taken.size());
    return taken;
  }

  // Little-endian, like every machine that hone supports.
  template <class T>
  T read(std::string_view what) {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  // Reads a base-128 number of protobuf, at most 64 bits.
  std::uint64_t read_varint(std::string_view what) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = read<std::uint8_t>(what);
      if (shift == 63 && byte > 1) break;
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    fail_corrupt(where_, concat("The number for ", what, " has more than 64 bits."));
  }

 private:
  std::string_view rest_;
  std::string_view where_;
};

}  // namespace hone::text
