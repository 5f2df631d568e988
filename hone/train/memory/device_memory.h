// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <exception>
#include <optional>
#include <string_view>

#include "hone/core/index.h"
#include "hone/train/memory/memory_meter.h"

namespace hone::memory {

// The number of bytes that this process can still allocate on a device. For the CPU, this is what
// the system reports as available, limited by the control group. Throws Error{Unsupported} for
// other devices whose allocator does not report it (LibTorch before 2.9).
Index free_bytes(c10::Device device);
// The resident memory of this process.
Index resident_bytes();
// The largest that it was so far.
Index peak_resident_bytes();
// Returns freed memory that allocators cache to the system, on all devices in use.
void release_caches();

// Counts the bytes of tensors on one device: by a MemoryMeter on the CPU, by the allocator's own
// statistics on CUDA (Error{Unsupported} with LibTorch before 2.9).
class DeviceMeter {
 public:
  explicit DeviceMeter(c10::Device device);
  Index current() const;
  // The peak since reset_peak(). On CUDA, of the memory that the allocator has reserved from the
  // device.
  Index peak() const;
  void reset_peak() const;

 private:
  c10::Device device_;
  std::optional<MemoryMeter> cpu_;
};

// Whether this is what an allocator throws when memory runs out: c10::OutOfMemoryError,
// std::bad_alloc, or the c10::Error of LibTorch's CPU allocator.
bool is_out_of_memory(const std::exception_ptr& thrown);

// Call it in a catch block: throws Error{Resource} if memory ran out, otherwise rethrows the
// exception.
[[noreturn]] void rethrow_clearly(std::string_view what);
// Runs `work`. If memory runs out, throws Error{Resource} that names the job `what`.
template <class Work>
auto run_in_memory(std::string_view what, const Work& work) {
  try {
    return work();
  } catch (...) {
    rethrow_clearly(what);
  }
}

}  // namespace hone::memory
