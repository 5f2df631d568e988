// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "hone/core/index.h"

namespace hone {

namespace detail {
struct MappedSlot;
}

// Addresses that belong to a mapped file. If another program truncates the file, or its disk fails,
// reading a page that is gone raises SIGBUS. As long as this object lives, the page becomes one of
// zeros instead, and is_damaged() says so: whoever has read the range looks afterwards.
//
// The first object installs a handler of SIGBUS for the process, which passes on the signals of all
// other addresses to the handler before it. The handler only reads and writes atomics and calls
// mmap(), so it may interrupt anything; objects may be made and destroyed on any thread.
class MappedRange {
 public:
  MappedRange() = default;
  // Whole pages from `begin`, mapped with mmap()'s `protection`. The range must stay mapped.
  MappedRange(const void* begin, Index bytes, int protection);
  MappedRange(MappedRange&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  MappedRange& operator=(MappedRange&& other) noexcept {
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~MappedRange();

  // Whether a page has been replaced by zeros. False without addresses.
  bool is_damaged() const;

 private:
  detail::MappedSlot* slot_ = nullptr;
};

}  // namespace hone
