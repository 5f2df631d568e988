// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <exception>
#include <optional>
#include <string_view>

#include "hone/core/index.h"
#include "hone/train/memory/memory_meter.h"

namespace hone::memory {

// Bytes that this process may still take on a device. CPU: what the system calls available, and no
// more than the control group leaves. Error{Unsupported} for another device whose allocator does
// not tell (LibTorch before 2.9).
Index free_bytes(c10::Device device);
// Memory of this process that is in RAM.
Index resident_bytes();
// Hands freed memory that allocators keep back to the system; on all devices that are in use.
void release_caches();

// Bytes of tensors on one device: a MemoryMeter on the CPU, the allocator's own count on CUDA
// (Error{Unsupported} with LibTorch before 2.9).
class DeviceMeter {
 public:
  explicit DeviceMeter(c10::Device device);
  Index current() const;
  // Since reset_peak(). CUDA: of what the allocator has reserved from the device.
  Index peak() const;
  void reset_peak() const;

 private:
  c10::Device device_;
  std::optional<MemoryMeter> cpu_;
};

// Is this what an allocator throws when there is no memory: c10::OutOfMemoryError, std::bad_alloc,
// or the c10::Error of LibTorch's CPU allocator?
bool is_out_of_memory(const std::exception_ptr& thrown);

// Inside a catch block: Error{Resource} for what is_out_of_memory, else what was thrown.
[[noreturn]] void rethrow_clearly(std::string_view what);
// Runs `work`; where memory runs out Error{Resource} in one sentence, of the job `what`.
template <class Work>
auto run_in_memory(std::string_view what, const Work& work) {
  try {
    return work();
  } catch (...) {
    rethrow_clearly(what);
  }
}

}  // namespace hone::memory
