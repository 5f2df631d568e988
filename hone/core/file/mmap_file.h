// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "hone/core/file/mapped_range.h"
#include "hone/core/index.h"

namespace hone {

// Identifies a file and its version.
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

// Maps a whole file as private; pages are read on first touch. An empty file has an empty span.
// Throws Error{NotFound} if the file cannot be opened, Error{CorruptFile} if it is not a regular
// file, and Error{Io} if it cannot be mapped.
//
// A file that is truncated while it is mapped reads as zeros from then on (mapped_range.h). Call
// check_intact() after the bytes were used and before anybody relies on the result.
class MmapFile {
 public:
  explicit MmapFile(const std::filesystem::path& path, MapAccess access = MapAccess::Read);
  MmapFile(MmapFile&& other) noexcept;
  MmapFile& operator=(MmapFile&& other) noexcept;
  ~MmapFile();

  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_)}; }
  // Requires CopyOnWrite.
  std::span<std::byte> writable_bytes() const;
  const std::filesystem::path& path() const { return path_; }
  const FileState& state() const { return state_; }  // when the file was opened

  // Tells the kernel that this part of a mapping for reading is no longer needed. Its pages are
  // clean.
  void drop_pages(std::span<const std::byte> part) const;

  // Returns true if a page was lost before it was read. Costs nothing.
  bool is_damaged() const { return range_.is_damaged(); }
  // Throws Error{CorruptFile} that names the file if is_damaged(), or if the file has changed since
  // it was opened. Renaming another file over it is not a change.
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
