// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "hone/core/index.h"

namespace hone {

// A whole file, mapped read-only and private; pages are read on first touch. Error{NotFound} if it
// cannot be opened, Error{CorruptFile} if it is not a regular file, Error{Io} if it cannot be
// mapped. An empty file gives an empty span.
class MmapFile {
 public:
  explicit MmapFile(const std::filesystem::path& path);
  MmapFile(MmapFile&& other) noexcept;
  MmapFile& operator=(MmapFile&& other) noexcept;
  ~MmapFile();

  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_)}; }
  const std::filesystem::path& path() const { return path_; }
  // Tells the kernel that this part of the mapping is no longer needed. Its pages are clean.
  void drop_pages(std::span<const std::byte> part) const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  Index size_ = 0;
};

}  // namespace hone
