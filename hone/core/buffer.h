// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "hone/core/index.h"

namespace hone {

// Asks the system to use huge pages for the whole pages within these bytes. Does nothing below 2
// MiB or where the system has no huge pages. Call it before the memory is first touched.
void advise_huge_pages(void* data, Index bytes);

// Owns zero-filled bytes, aligned to 64. Buffers of 2 MiB and more are mapped, aligned to 2 MiB and
// advised for huge pages. Move-only. Throws Error{Resource} if the memory cannot be allocated.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(Index bytes);
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer();

  std::byte* data() const { return data_; }
  Index bytes() const { return bytes_; }
  std::span<std::byte> span() const { return {data_, static_cast<std::size_t>(bytes_)}; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  Index bytes_ = 0;
};

}  // namespace hone
