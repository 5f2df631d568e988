// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>

#include "hone/core/index.h"

namespace hone::memory {

// What the program is doing when it allocates memory.
enum class Phase { Other, Setup, Forward, Backward, Step };
inline constexpr std::size_t kPhases = 5;

// Requested bytes, without the allocator's rounding.
struct MemoryUse {
  Index current = 0, peak = 0;
  // Bytes alive now, and when `peak` was reached, by the phase that allocated them.
  std::array<Index, kPhases> by_phase{}, at_peak{};

  Index of(Phase phase) const { return by_phase[static_cast<std::size_t>(phase)]; }
  Index at_peak_of(Phase phase) const { return at_peak[static_cast<std::size_t>(phase)]; }
};

// Counts the bytes of CPU tensors while a meter exists, by wrapping LibTorch's CPU allocator. All
// meters share one count. Tensors from before the first meter are not counted, not even when they
// are freed; a tensor that outlives the last meter is subtracted whenever it is freed. Costs a lock
// and 64 bytes per allocation. Memory that libraries allocate themselves (oneDNN, MKL) is not
// counted.
class MemoryMeter {
 public:
  // Throws Error{Unsupported} if another allocator is installed.
  MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;
  ~MemoryMeter();

  MemoryUse use() const;
  // Restarts the peak at the current count.
  void reset_peak() const;
  // Whether this tensor's memory is counted.
  static bool counts(const at::Tensor& tensor);
};

// Attributes the allocations of the whole process to `phase` until the scope ends. Almost free
// without a meter.
class PhaseScope {
 public:
  explicit PhaseScope(Phase phase);
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;
  ~PhaseScope();

 private:
  Phase before_;
};

// In this scope, an allocation that would raise the count above `bytes` throws
// c10::OutOfMemoryError. The innermost limit applies. Needs a MemoryMeter.
class MemoryLimit {
 public:
  explicit MemoryLimit(Index bytes);
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
  ~MemoryLimit();

 private:
  Index before_;
};

}  // namespace hone::memory
