// SPDX-License-Identifier: Apache-2.0
#include "hone/data/image/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"

namespace hone::data {
namespace {

struct Inflater {
  z_stream stream{};
  explicit Inflater(std::string_view where) {
    constexpr int kGzip = 16 + MAX_WBITS;
    if (inflateInit2(&stream, kGzip) != Z_OK) {
      fail(ErrorCategory::Resource, where, "There is no memory for a gzip decoder.");
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

enum class Excess { Reject, Ignore };  // what happens to content beyond max_bytes

std::vector<std::uint8_t> unpack(std::span<const std::byte> file, std::string_view where,
                                 Index max_bytes, Excess excess) {
  if (file.size() > std::numeric_limits<uInt>::max()) {
    fail_corrupt(where, "at most 4 GiB of gzip data", concat(file.size(), " bytes"));
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
      if (static_cast<Index>(used) > max_bytes) break;
      out.resize(used + std::clamp(used / 2, kPiece, std::size_t{1} << 26));
    }
    const std::size_t room = out.size() - used;
    stream.next_out = out.data() + used;
    stream.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream, Z_NO_FLUSH);
    used += room - stream.avail_out;
    if (status == Z_STREAM_END) break;
    if (status != Z_OK || (stream.avail_in == 0 && stream.avail_out > 0)) {
      fail_corrupt(where, stream.msg != nullptr ? concat("The gzip data is damaged: ", stream.msg)
                                                : concat("The gzip data is cut short after ", used,
                                                         " bytes of content."));
    }
  }
  if (static_cast<Index>(used) > max_bytes && excess == Excess::Reject) {
    fail_corrupt(where, concat("The gzip data unpacks to more than ", max_bytes, " bytes."));
  }
  out.resize(std::min(used, static_cast<std::size_t>(max_bytes)));
  return out;
}

}  // namespace

std::vector<std::uint8_t> unpack_gzip(std::span<const std::byte> file, std::string_view where,
                                      Index max_bytes) {
  return unpack(file, where, max_bytes, Excess::Reject);
}

std::vector<std::uint8_t> read_begin(const std::filesystem::path& path, Index count) {
  const MmapFile file(path);
  const auto bytes = file.bytes();
  if (is_gzip(bytes)) return unpack(bytes, path.string(), count, Excess::Ignore);
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {data, data + std::min<std::size_t>(bytes.size(), static_cast<std::size_t>(count))};
}

std::vector<std::uint8_t> read_plain_or_gzip(const std::filesystem::path& path, Index max_bytes) {
  const MmapFile file(path);
  const auto bytes = file.bytes();
  if (is_gzip(bytes)) return unpack_gzip(bytes, path.string(), max_bytes);
  if (static_cast<Index>(bytes.size()) > max_bytes) {
    fail_corrupt(path.string(), concat("at most ", max_bytes, " bytes"), concat(bytes.size()));
  }
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {data, data + bytes.size()};
}

}  // namespace hone::data
