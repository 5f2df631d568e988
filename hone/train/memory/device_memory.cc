// SPDX-License-Identifier: Apache-2.0
#include "hone/train/memory/device_memory.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <algorithm>
#include <new>
#include <string>

#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/machine/process_memory.h"

namespace hone::memory {
namespace {

// Calls act(allocator) for a device other than the CPU. Returns false if there is no such
// allocator.
template <class Act>
bool with_device_allocator(c10::Device device, const Act& act) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 9
  if (device.is_cuda() && at::hasCUDA()) {
    if (auto* const allocator = c10::getDeviceAllocator(device.type())) {
      act(*allocator);
      return true;
    }
  }
#endif
  return false;
}

// getMemoryInfo is newer than the rest of the interface.
template <class Allocator>
Index free_of(Allocator& allocator, c10::DeviceIndex index) {
  if constexpr (requires { allocator.getMemoryInfo(index); }) {
    return static_cast<Index>(allocator.getMemoryInfo(index).first);
  } else {
    return -1;
  }
}

constexpr std::size_t kAggregate = 0;  // of CachingDeviceAllocator::StatType

}  // namespace

Index free_bytes(c10::Device device) {
  if (device.is_cpu()) return available_memory_bytes();
  Index free = -1;
  with_device_allocator(device,
                        [&](auto& allocator) { free = free_of(allocator, device.index()); });
  if (free < 0)
    fail_unsupported("free memory",
                     concat("The allocator of ", device.str(), " does not report it."));
  return free;
}

void release_caches() {
  release_free_memory();
  with_device_allocator(c10::Device(c10::kCUDA, 0),
                        [](auto& allocator) { allocator.emptyCache(); });
}

Index reserved_peak_bytes(c10::Device device) {
  Index bytes = 0;
  with_device_allocator(device, [&](auto& allocator) {
    bytes = allocator.getDeviceStats(device.index()).reserved_bytes[kAggregate].peak;
  });
  return bytes;
}

DeviceMeter::DeviceMeter(c10::Device device) : device_(device) {
  if (device.is_cpu()) {
    cpu_.emplace();
  } else if (!with_device_allocator(device, [](auto&) {})) {
    fail_unsupported("memory meter",
                     concat("The allocator of ", device.str(), " does not count allocations."));
  }
}

Index DeviceMeter::current() const {
  if (cpu_) return cpu_->use().current;
  Index bytes = 0;
  with_device_allocator(device_, [&](auto& allocator) {
    bytes = allocator.getDeviceStats(device_.index()).allocated_bytes[kAggregate].current;
  });
  return bytes;
}

Index DeviceMeter::peak() const {
  if (cpu_) return cpu_->use().peak;
  return reserved_peak_bytes(device_);
}

void DeviceMeter::reset_peak() const {
  if (cpu_) return cpu_->reset_peak();
  with_device_allocator(device_,
                        [&](auto& allocator) { allocator.resetPeakStats(device_.index()); });
}

bool is_out_of_memory(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const c10::OutOfMemoryError&) {
    return true;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const c10::Error& error) {
    return std::string_view(error.what_without_backtrace()).find("DefaultCPUAllocator") !=
           std::string_view::npos;
  } catch (const std::exception& error) {  // of a script, whose interpreter writes another type
    return std::string_view(error.what()).find("DefaultCPUAllocator") != std::string_view::npos;
  } catch (...) {
    return false;
  }
}

void rethrow_clearly(std::string_view what) {
  constexpr std::string_view kProblem = "There is not enough memory for the tensors";
  if (!is_out_of_memory(std::current_exception())) throw;
  try {
    throw;
  } catch (const c10::Error& error) {
    // The text is "[enforce fail at alloc_cpu.cpp:1] err == 0. DefaultCPUAllocator: …" and lines of
    // a trace.
    std::string_view said = error.what_without_backtrace();
    said = said.substr(0, said.find('\n'));
    if (const auto at = said.find("DefaultCPUAllocator: "); at != std::string_view::npos) {
      said.remove_prefix(said.find(' ', at) + 1);
    }
    fail(ErrorCategory::Resource, what, concat(kProblem, ": ", said));
  } catch (const std::bad_alloc&) {
    fail(ErrorCategory::Resource, what, concat(kProblem, "."));
  }
}

}  // namespace hone::memory
