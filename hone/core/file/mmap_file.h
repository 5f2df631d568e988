// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "hone/core/file/mapped_range.h"
#include "hone/core/index.h"

namespace hone {

// Which file it is, and of what time.
struct FileState {
  std::uint64_t device = 0, inode = 0;
  Index size = 0;
  std::int64_t modified_ns = 0;  // since 1970

  friend bool operator==(const FileState&, const FileState&) = default;
};

enum class MapAccess {
  Read,
  CopyOnWrite,  // writing copies a page for this process; the file never changes
};

// A whole file, mapped private; pages are read on first touch. Error{NotFound} if it cannot be
// opened, Error{CorruptFile} if it is not a regular file, Error{Io} if it cannot be mapped. An
// empty file gives an empty span.
//
// A file that is truncated while it is mapped reads as zeros from then on (mapped_range.h).
// Whoever makes something of the bytes therefore calls check_intact() before anybody relies on it.
class MmapFile {
 public:
  explicit MmapFile(const std::filesystem::path& path, MapAccess access = MapAccess::Read);
  MmapFile(MmapFile&& other) noexcept;
  MmapFile& operator=(MmapFile&& other) noexcept;
  ~MmapFile();

  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_)}; }
  // Only of a mapping that is CopyOnWrite.
  std::span<std::byte> writable_bytes() const;
  const std::filesystem::path& path() const { return path_; }
  const FileState& state() const { return state_; }  // as the file was opened

  // Tells the kernel that this part of a mapping for reading is no longer needed. Its pages are
  // clean.
  void drop_pages(std::span<const std::byte> part) const;

  // Whether a page that was read has gone. Costs nothing.
  bool is_damaged() const { return range_.is_damaged(); }
  // Throws Error{CorruptFile} that names the file if is_damaged(), or if the file has changed since
  // it was opened. Another file that was renamed over it does not matter.
  void check_intact() const;

 private:
  std::filesystem::path path_;
  std::byte* data_ = nullptr;
  Index size_ = 0;
  MapAccess access_ = MapAccess::Read;
  FileState state_;
  MappedRange range_;
};

}  // namespace hone
