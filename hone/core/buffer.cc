// SPDX-License-Identifier: Apache-2.0
#include "hone/core/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "hone/core/check.h"

namespace hone {
namespace {

constexpr Index kHugePage = Index{2} << 20;

bool is_mapped(Index bytes) { return bytes >= kHugePage; }

std::byte* map_huge(Index bytes) {
  const Index length = round_up(bytes, kHugePage);
  void* raw = ::mmap(nullptr, static_cast<std::size_t>(length + kHugePage), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const auto aligned = static_cast<std::uintptr_t>(round_up(static_cast<Index>(start), kHugePage));
  if (aligned > start) ::munmap(raw, aligned - start);
  const std::size_t tail = start + static_cast<std::uintptr_t>(kHugePage) - aligned;
  if (tail > 0)
    ::munmap(reinterpret_cast<void*>(aligned + static_cast<std::uintptr_t>(length)), tail);
  advise_huge_pages(reinterpret_cast<void*>(aligned), length);
  return reinterpret_cast<std::byte*>(aligned);
}

std::byte* allocate_small(Index bytes) {
  const auto padded = static_cast<std::size_t>(round_up(bytes, kCacheLine));
  void* data = std::aligned_alloc(kCacheLine, padded);
  if (data != nullptr) std::memset(data, 0, padded);
  return static_cast<std::byte*>(data);
}

}  // namespace

void advise_huge_pages(void* data, Index bytes) {
  constexpr Index kPage = 4096;
  const auto start = static_cast<Index>(reinterpret_cast<std::uintptr_t>(data));
  const Index begin = round_up(start, kPage), end = (start + bytes) / kPage * kPage;
  if (end - begin < kHugePage) return;
  ::madvise(reinterpret_cast<void*>(begin), static_cast<std::size_t>(end - begin), MADV_HUGEPAGE);
}

Buffer::Buffer(Index bytes) : bytes_(bytes) {
  HONE_CHECK(bytes >= 0, "Buffer", "a size of at least 0 bytes", bytes);
  if (bytes == 0) return;
  data_ = is_mapped(bytes) ? map_huge(bytes) : allocate_small(bytes);
  if (data_ == nullptr) {
    bytes_ = 0;
    fail(ErrorCategory::Resource, "Buffer",
         concat("The system refused ", bytes, " bytes of memory."));
  }
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (is_mapped(bytes_)) {
    ::munmap(data_, static_cast<std::size_t>(round_up(bytes_, kHugePage)));
  } else {
    std::free(data_);
  }
}

}  // namespace hone
