// SPDX-License-Identifier: Apache-2.0
#include "hone/core/mmap_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file_io.h"

namespace hone {

MmapFile::MmapFile(const std::filesystem::path& path) : path_(path) {
  const int descriptor = open_regular_file(path);
  struct stat status {};
  void* data = nullptr;
  if (::fstat(descriptor, &status) == 0 && status.st_size > 0) {
    data = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE,
                  descriptor, 0);
  }
  const int problem = errno;
  ::close(descriptor);
  if (data == MAP_FAILED)
    fail(ErrorCategory::Io, path.string(),
         concat("Could not map the file: ", std::strerror(problem)));
  data_ = static_cast<const std::byte*>(data);
  size_ = status.st_size;
}

MmapFile::MmapFile(MmapFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MmapFile& MmapFile::operator=(MmapFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MmapFile::~MmapFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_));
  }
}

void MmapFile::drop_pages(std::span<const std::byte> part) const {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(part.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace hone
