// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "hone/core/index.h"

namespace hone {

namespace detail {
struct MappedSlot;
}

// Addresses that belong to a mapped file. If another program truncates the file, or its disk fails,
// reading a lost page raises SIGBUS. While this object lives, a page of zeros replaces the lost
// page instead, and is_damaged() returns true. Check it after reading the range.
//
// The first object installs a SIGBUS handler for the process. It forwards signals for all other
// addresses to the previous handler. The handler only reads and writes atomics and calls mmap(), so
// it may interrupt anything. Objects may be made and destroyed on any thread.
class MappedRange {
 public:
  MappedRange() = default;
  // Covers whole pages from `begin`, mapped with `protection`. The pages must stay mapped.
  MappedRange(const void* begin, Index bytes, int protection);
  MappedRange(MappedRange&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  MappedRange& operator=(MappedRange&& other) noexcept {
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~MappedRange();

  // Returns true if zeros have replaced a page. Returns false for an object without addresses.
  bool is_damaged() const;

 private:
  detail::MappedSlot* slot_ = nullptr;
};

}  // namespace hone
