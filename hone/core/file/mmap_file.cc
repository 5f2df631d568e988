// SPDX-License-Identifier: Apache-2.0
#include "hone/core/file/mmap_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"

namespace hone {
namespace {

FileState state_of(const struct stat& status) {
  return {
      .device = status.st_dev,
      .inode = status.st_ino,
      .size = status.st_size,
      .modified_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

}  // namespace

MmapFile::MmapFile(const std::filesystem::path& path, MapAccess access)
    : path_(path), access_(access) {
  const int descriptor = open_regular_file(path);
  const int protection = access == MapAccess::Read ? PROT_READ : PROT_READ | PROT_WRITE;
  struct stat status {};
  void* data = nullptr;
  if (::fstat(descriptor, &status) == 0 && status.st_size > 0) {
    data = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), protection, MAP_PRIVATE,
                  descriptor, 0);
  }
  const int problem = errno;
  ::close(descriptor);
  if (data == MAP_FAILED)
    fail(ErrorCategory::Io, path.string(),
         concat("Could not map the file: ", std::strerror(problem)));
  data_ = static_cast<std::byte*>(data);
  size_ = status.st_size;
  state_ = state_of(status);
  range_ = MappedRange(data_, size_, protection);
}

MmapFile::MmapFile(MmapFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      access_(other.access_),
      state_(other.state_),
      range_(std::move(other.range_)) {}

MmapFile& MmapFile::operator=(MmapFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(access_, other.access_);
  std::swap(state_, other.state_);
  std::swap(range_, other.range_);
  return *this;
}

MmapFile::~MmapFile() {
  range_ = {};  // before another mapping can have these addresses
  if (data_ != nullptr) ::munmap(data_, static_cast<std::size_t>(size_));
}

std::span<std::byte> MmapFile::writable_bytes() const {
  HONE_REQUIRE(access_ == MapAccess::CopyOnWrite, path_.string(), "The mapping is for reading.");
  return {data_, static_cast<std::size_t>(size_)};
}

void MmapFile::drop_pages(std::span<const std::byte> part) const {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(part.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size()) / page * page;
  HONE_REQUIRE(access_ == MapAccess::Read, path_.string(), "Pages may have been written to.");
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void MmapFile::check_intact() const {
  if (is_damaged()) fail_corrupt(path_.string(), "The file was truncated while it was read.");
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) return;
  const FileState now = state_of(status);
  const bool is_same_file = now.device == state_.device && now.inode == state_.inode;
  if (is_same_file && now != state_) {
    fail_corrupt(path_.string(), "The file was changed while it was read.");
  }
}

}  // namespace hone
