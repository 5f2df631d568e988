// SPDX-License-Identifier: Apache-2.0
#include "hone/data/image/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "hone/core/check.h"
#include "hone/core/mmap_file.h"

namespace hone::data {
namespace {

struct Inflater {
  z_stream stream{};
  explicit Inflater(std::string_view where) {
    constexpr int kGzip = 16 + MAX_WBITS;
    if (inflateInit2(&stream, kGzip) != Z_OK) {
      fail(ErrorCategory::Resource, where, "a gzip decoder", "no memory");
    }
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream); }
};

}  // namespace

bool is_gzip(std::span<const std::byte> file) {
  return file.size() >= 2 && file[0] == std::byte{0x1f} && file[1] == std::byte{0x8b};
}

namespace {

enum class Beyond { Refuse, Leave };  // what is done with content beyond the most

std::vector<std::uint8_t> unpack(std::span<const std::byte> file, std::string_view where,
                                 Index most, Beyond beyond) {
  if (file.size() > std::numeric_limits<uInt>::max()) {
    fail_corrupt(where, "at most 4 GiB of gzip", concat(file.size(), " bytes"));
  }
  Inflater inflater(where);
  z_stream& stream = inflater.stream;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(file.data()));
  stream.avail_in = static_cast<uInt>(file.size());
  constexpr std::size_t kPiece = 1 << 16;
  std::vector<std::uint8_t> out;
  std::size_t used = 0;
  while (true) {
    if (used == out.size()) {
      if (static_cast<Index>(used) > most) break;
      out.resize(used + std::clamp(used / 2, kPiece, std::size_t{1} << 26));
    }
    const std::size_t room = out.size() - used;
    stream.next_out = out.data() + used;
    stream.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream, Z_NO_FLUSH);
    used += room - stream.avail_out;
    if (status == Z_STREAM_END) break;
    if (status != Z_OK || (stream.avail_in == 0 && stream.avail_out > 0)) {
      fail_corrupt(
          where, "whole gzip data",
          stream.msg != nullptr ? stream.msg : concat("an end after ", used, " bytes of content"));
    }
  }
  if (static_cast<Index>(used) > most && beyond == Beyond::Refuse) {
    fail_corrupt(where, concat("at most ", most, " bytes"), "more");
  }
  out.resize(std::min(used, static_cast<std::size_t>(most)));
  return out;
}

}  // namespace

std::vector<std::uint8_t> unpack_gzip(std::span<const std::byte> file, std::string_view where,
                                      Index most) {
  return unpack(file, where, most, Beyond::Refuse);
}

std::vector<std::uint8_t> read_begin(const std::filesystem::path& path, Index count) {
  const MmapFile file(path);
  const auto bytes = file.bytes();
  if (is_gzip(bytes)) return unpack(bytes, path.string(), count, Beyond::Leave);
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {data, data + std::min<std::size_t>(bytes.size(), static_cast<std::size_t>(count))};
}

std::vector<std::uint8_t> read_plain_or_gzip(const std::filesystem::path& path, Index most) {
  const MmapFile file(path);
  const auto bytes = file.bytes();
  if (is_gzip(bytes)) return unpack_gzip(bytes, path.string(), most);
  if (static_cast<Index>(bytes.size()) > most) {
    fail_corrupt(path.string(), concat("at most ", most, " bytes"), concat(bytes.size()));
  }
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {data, data + bytes.size()};
}

}  // namespace hone::data
