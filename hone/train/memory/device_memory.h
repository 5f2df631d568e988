// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <exception>
#include <optional>
#include <string_view>

#include "hone/core/index.h"
#include "hone/train/memory/memory_meter.h"

namespace hone::memory {

// Returns the number of bytes that this process can still allocate on a device. For the CPU, this
// is the available memory of the system, limited by the control group. Throws Error{Unsupported}
// for other devices whose allocator does not report it (LibTorch before 2.9).
Index free_bytes(c10::Device device);
// Returns the caches of allocators to the system, on all devices in use.
void release_caches();

// The peak of memory that a device's allocator has reserved; 0 for the CPU and where it is unknown.
Index reserved_peak_bytes(c10::Device device);

// Counts the bytes of tensors on one device: by a MemoryMeter on the CPU, by the allocator's own
// statistics on CUDA (Error{Unsupported} with LibTorch before 2.9).
class DeviceMeter {
 public:
  explicit DeviceMeter(c10::Device device);
  Index current() const;
  // The peak since reset_peak(). On CUDA, the peak of memory that the allocator has reserved.
  Index peak() const;
  void reset_peak() const;

 private:
  c10::Device device_;
  std::optional<MemoryMeter> cpu_;
};

// True for the exceptions that allocators throw when memory runs out: c10::OutOfMemoryError,
// std::bad_alloc, and the c10::Error of LibTorch's CPU allocator.
bool is_out_of_memory(const std::exception_ptr& thrown);

// Call it in a catch block: throws Error{Resource} if memory ran out, otherwise rethrows the
// exception.
[[noreturn]] void rethrow_clearly(std::string_view what);
// Runs `work`. Throws Error{Resource} that names the job `what` if memory runs out.
template <class Work>
auto run_in_memory(std::string_view what, const Work& work) {
  try {
    return work();
  } catch (...) {
    rethrow_clearly(what);
  }
}

}  // namespace hone::memory
